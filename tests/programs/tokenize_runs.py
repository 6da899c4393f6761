# SPDX-License-Identifier: MIT
#
# Goal: tools/tokenize writes what the tokenizers library says, for text, jsonl, parquet and chats; train takes its files, refuses
#       those of another tokenizer, and shows its sample as the library's text.
# Method: two small tokenizers are trained here, of GPT-2's and of SentencePiece's kind. Their own encode and decode are the
#         reference. Needs a python with tokenizers, pyarrow, jinja2 and numpy: that of EO_PEERS_PYTHON, else it is skipped.
# usage: tokenize_runs.py TOKENIZE TRAIN
import importlib.machinery
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from peers import enter_or_skip, python
from tap import finish, result

tokenize, train = (os.path.realpath(word) for word in sys.argv[1:3])
enter_or_skip("tokenizers, pyarrow, jinja2, numpy")

import numpy
import pyarrow
import pyarrow.parquet
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

DOCUMENTS = ["The planner lays out memory.\n\tIt proves the schedule.", "Grüße, ein Maß für Ranks: 日本語 🙂", "a\n\nb  c",
             "".join(f"{number * 7919 % 1009} ranks\n" for number in range(40))]


def make_tokenizer(kind, folder):
    """Kinds of decoders that train knows."""
    tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=kind == "spaces", unk_token=None))
    alphabet = []
    if kind == "bytes":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
        tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<|end|>"] + ([f"<0x{b:02X}>" for b in range(256)] if kind == "spaces" else [])
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=alphabet, max_token_length=6,
                                  show_progress=False)
    tokenizer.train_from_iterator([text for text in DOCUMENTS for _ in range(5)], trainer)
    os.makedirs(folder)
    saved = json.loads(tokenizer.to_str())
    if kind == "spaces":  # bytes are pieces of the vocabulary, and not added
        saved["added_tokens"] = saved["added_tokens"][:1]
    with open(folder + "/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(saved, file)
    with open(folder + "/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token": "<|end|>", "chat_template":
                   "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"}, file)
    tokenizer = tokenizers.Tokenizer.from_file(folder + "/tokenizer.json")
    with open(folder + "/config.json", "w", encoding="utf-8") as file:
        json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 1,
                   "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64,
                   "vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
                   "tie_word_embeddings": True}, file)
    return tokenizer


def run(*words, before=None):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, preexec_fn=before)


def write_json_lines(path, *records):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def read(path):
    """Tokens and what the header says; of documents with ends of their own last the token for the end, and one."""
    with open(path, "rb") as file:
        data = file.read()
    magic, version, count, tag, vocabulary, boundary, own_hash = struct.unpack("<iiI4sIIQ", data[:32])
    assert tag == b"EOTK" and data[32:36] + data[40:1024] == bytes(988)
    tokens = numpy.frombuffer(data[1024:], "<u2" if magic == 20240520 else "<u4")
    assert len(tokens) == count and version == (1 if magic == 20240520 else 7)
    return tokens.tolist(), vocabulary, boundary, own_hash, struct.unpack("<I", data[36:40])[0]


def write_inputs():
    for number, text in enumerate(DOCUMENTS):
        with open(f"{number}.txt", "w", encoding="utf-8", newline="") as file:
            file.write(text)
    with open("lines.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": 1, "body": text}) + "\n" for text in DOCUMENTS)
    pyarrow.parquet.write_table(pyarrow.table({"text": DOCUMENTS, "score": [1.0] * len(DOCUMENTS)}), "rows.parquet")
    with open("chat.jsonl", "w", encoding="utf-8") as file:
        file.write(json.dumps({"messages": [{"role": "user", "content": "42 ranks?"}, {"role": "assistant", "content": "Yes"}]}))


def check_kind(kind):
    tokenizer = make_tokenizer(kind, kind)
    end = tokenizer.token_to_id("<|end|>")
    wanted = [token for text in DOCUMENTS for token in [end] + tokenizer.encode(text, add_special_tokens=False).ids]
    files = [f"{number}.txt" for number in range(len(DOCUMENTS))]
    for name, words in {"texts": files, "jsonl": ["lines.jsonl", "--text-key", "body"], "parquet": ["rows.parquet"]}.items():
        done = run(python, tokenize, *words, "--tokenizer", kind, "--out", f"{kind}-{name}.bin")
        found = read(f"{kind}-{name}.bin") if done.returncode == 0 else ()
        good = found[:3] == (wanted, tokenizer.get_vocab_size(), end) and found[4] == 0
        result(good, f"{kind}: {name} become the library's tokens", [done.stderr])
    done = run(python, tokenize, "rows.parquet", "--tokenizer", kind, "--out", f"{kind}-part.bin", "--shard-tokens", "9")
    parts = sorted(name for name in os.listdir(".") if name.startswith(f"{kind}-part-"))
    result(done.returncode == 0 and len(parts) > 1 and [t for part in parts for t in read(part)[0]] == wanted,
           f"{kind}: shards are the same tokens", [done.stderr, parts])
    done = run(python, tokenize, "chat.jsonl", "--tokenizer", kind, "--out", f"{kind}-chat.bin")
    text = "<user>42 ranks?<|end|><assistant>Yes<|end|>"
    found = read(f"{kind}-chat.bin") if done.returncode == 0 else ()
    result(found and found[0] == [end] + tokenizer.encode(text, add_special_tokens=False).ids and found[4] == end + 1,
           f"{kind}: messages become the template's text", [done.stderr])
    return tokenizer


def read_marks(path):
    """Tokens with the bit of each: does it count in the loss?"""
    with open(path, "rb") as file:
        data = file.read()
    count, = struct.unpack("<I", data[8:12])
    size = 2 if data[:4] == struct.pack("<i", 20240520) else 4
    assert struct.unpack("<I", data[32:36]) == (1,) and len(data) == 1024 + count * size + (count + 7) // 8
    tokens = numpy.frombuffer(data[1024:1024 + count * size], f"<u{size}").tolist()
    return list(zip(tokens, numpy.unpackbits(numpy.frombuffer(data[1024 + count * size:], "u1"), bitorder="little")[:count].tolist()))


def check_marks(kind, tokenizer):
    """Prompts do not count, completions and their end do; nor does what stands between an assistant's messages."""
    def ids(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    def pair(prompt, completion):
        encoding = tokenizer.encode(prompt + completion, add_special_tokens=False)
        return [(end, 0)] + [(token, int(last > len(prompt))) for token, (_, last) in zip(encoding.ids, encoding.offsets)] + [(end, 1)]

    end = tokenizer.token_to_id("<|end|>")
    with open("pairs.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in (
            {"prompt": DOCUMENTS[0], "completion": DOCUMENTS[1]}, {"text": DOCUMENTS[2]},
            {"prompt": "2 ranks", "completion": "and 🙂"}))
    done = run(python, tokenize, "pairs.jsonl", "--tokenizer", kind, "--out", f"{kind}-pairs.bin")
    wanted = pair(DOCUMENTS[0], DOCUMENTS[1]) + [(token, 1) for token in [end] + ids(DOCUMENTS[2])] + pair("2 ranks", "and 🙂")
    result(done.returncode == 0 and read_marks(f"{kind}-pairs.bin") == wanted, f"{kind}: completions count, prompts do not",
           [done.stderr])
    with open("chat.jsonl", encoding="utf-8") as file:
        write_json_lines("both.jsonl", {"text": "42 ranks? Yes", **json.load(file)})
    done = run(python, tokenize, "both.jsonl", "--assistant-only", "--tokenizer", kind, "--out", f"{kind}-only.bin")
    counted = [token for token, counts in read_marks(f"{kind}-only.bin") if counts]
    shown = tokenizer.decode(counted, skip_special_tokens=False)
    result(done.returncode == 0 and shown.endswith("Yes<|end|>") and "42" not in shown and
           [token for token, _ in read_marks(f"{kind}-only.bin")] == read(f"{kind}-chat.bin")[0],
           f"{kind}: of a chat the assistant's words count: {shown!r}", [done.stderr])


def check_templates(tokenizer):
    """As transformers has it: a template that marks what is generated says what counts; tools and documents are none; tojson takes
    json's options; a file of a template goes before the one of the settings."""
    generated = ("{% if tools is not none or documents is not none %}?{% endif %}{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"
                 "{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ '\n' }}"
                 "{% if m.calls %}{{ m.calls | tojson(sort_keys=true) }}{% endif %}{% endfor %}")
    os.makedirs("generated")
    tokenizer.save("generated/tokenizer.json")
    with open("generated/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token": "<|end|>", "chat_template": "none of this"}, file)
    with open("generated/chat_template.jinja", "w", encoding="utf-8") as file:
        file.write(generated)
    with open("turns.jsonl", "w", encoding="utf-8") as file:
        json.dump({"messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "ü"}, {"role": "user", "content": "3?"},
                                {"role": "assistant", "content": "Yes", "calls": {"b": 1, "a": 2}}]}, file)
    done = run(python, tokenize, "turns.jsonl", "--tokenizer", "generated", "--assistant-only", "--out", "generated.bin")
    pairs = read_marks("generated.bin") if done.returncode == 0 else []
    text = '<user>2?\n<assistant>ü<|end|>\n<user>3?\n<assistant>Yes<|end|>\n{"a": 2, "b": 1}'
    wanted = [tokenizer.token_to_id("<|end|>")] + tokenizer.encode(text, add_special_tokens=False).ids
    counted = tokenizer.decode([token for token, counts in pairs if counts], skip_special_tokens=False)
    result([token for token, _ in pairs] == wanted and counted == "ü<|end|>Yes<|end|>",
           "what a template marks as generated counts, and nothing else; the text is that of transformers", [done.stderr, counted])


def check_boundary(tokenizer):
    """Where the end of text ends each turn, documents of chats begin with another token: a turn is no document of its own."""
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    tokenizer.add_special_tokens(["<|endoftext|>"])
    os.makedirs("instruct")
    tokenizer.save("instruct/tokenizer.json")
    with open("bytes/tokenizer_config.json", "rb") as source, open("instruct/tokenizer_config.json", "wb") as file:
        file.write(source.read())
    with open("instruct/config.json", "w", encoding="utf-8") as file, open("bytes/config.json", encoding="utf-8") as source:
        json.dump({**json.load(source), "vocab_size": tokenizer.get_vocab_size()}, file)
    with open("dialogues.jsonl", "w", encoding="utf-8") as file:
        for number in range(3):
            turns = [{"role": role, "content": f"{number} ranks"} for role in ("user", "assistant") * 2]
            file.write(json.dumps({"messages": turns}) + "\n")
    packed = [train, "--model", "instruct", "--seq", "48", "--batch", "1", "--ranks", "1", "--threads", "1", "--steps", "1", "--sample", "0",
              "--peak-seconds", "0", "--pack", "documents", "--tokens"]
    for words, wanted, found in ([], "<|endoftext|>", 3), (["--boundary", "<|end|>"], "<|end|>", 12):
        out = f"dialogues-{found}.bin"
        done = run(python, tokenize, "dialogues.jsonl", "--tokenizer", "instruct", "--assistant-only", "--out", out, *words)
        said = run(*packed, out) if done.returncode == 0 else done
        result(done.returncode == 0 and read_marks(out)[0][0] == tokenizer.token_to_id(wanted) and
               ("warning: 3 of 3 documents hold the boundary <|end|>" in done.stderr) == bool(words) and
               re.search(rf"^data: .*\b{found} documents", said.stdout, re.M) is not None,
               f"chats with {wanted} between them are {found} documents to train", [done.stderr, said.stdout[:600], said.stderr])


def check_own_begin(tokenizer):
    """Templates of Llama 3's kind write the token before documents themselves, take texts alone, and know calls and tools."""
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    tokenizer.add_special_tokens(["<|begin|>"])
    os.makedirs("begins")
    tokenizer.save("begins/tokenizer.json")
    with open("begins/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token": "<|end|>", "bos_token": "<|begin|>", "chat_template":
                   "{{ bos_token }}{% if tools %}{{ tools[0].name }}{% endif %}{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}"
                   "{{ m.tool_calls[0].name }}{% else %}{{ m['content'] | trim }}{% endif %}{{ eos_token }}{% endfor %}"}, file)
    user, text = {"role": "user", "content": "2?"}, [{"type": "text", "text": "Y"}, {"type": "text", "text": "es"}]
    called = {"role": "assistant", "content": None, "tool_calls": [{"name": "planner"}]}
    chats = [{"messages": [user, {"role": "assistant", "content": text}]}, {"messages": [user, called], "tools": [{"name": "ranks"}]},
             {"messages": [user, called], "tools": '[{"name": "ranks"}]'}]
    wanted = ["<|begin|><user>2?<|end|><assistant>Yes<|end|>"] + ["<|begin|>ranks<user>2?<|end|><assistant>planner<|end|>"] * 2
    write_json_lines("calls.jsonl", *chats)
    pyarrow.parquet.write_table(pyarrow.table({"messages": [chat["messages"] for chat in chats[1:]],
                                               "tools": [chat["tools"] for chat in chats[2:] * 2]}), "calls.parquet")
    for name, texts in ("calls.jsonl", wanted), ("calls.parquet", wanted[1:]):
        out = f"own-{name[6:]}.bin"
        done = run(python, tokenize, name, "--tokenizer", "begins", "--out", out)
        shown = tokenizer.decode(read(out)[0], skip_special_tokens=False) if done.returncode == 0 else ""
        result(shown == "".join(texts) and read(out)[2] == tokenizer.token_to_id("<|begin|>"),
               f"{name}: lists of texts, calls and tools are written, and each chat begins with one token", [done.stderr, shown])


def check_bos(tokenizer):
    """Of a tokenizer that puts BOS before texts, train packs documents from BOS to the end of text, and no BOS is a target."""
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    tokenizer.add_special_tokens(["<|begin|>"])
    begin, end = map(tokenizer.token_to_id, ("<|begin|>", "<|end|>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", begin)])
    os.makedirs("bos")
    tokenizer.save("bos/tokenizer.json")
    with open("bos/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token": "<|end|>", "bos_token": "<|begin|>"}, file)
    with open("bos/config.json", "w", encoding="utf-8") as file, open("bytes/config.json", encoding="utf-8") as source:
        json.dump({**json.load(source), "vocab_size": tokenizer.get_vocab_size()}, file)
    for name, words in ("texts", ["0.txt", "1.txt"]), ("rows", ["rows.parquet"]):
        done = run(python, tokenize, *words, "--tokenizer", "bos", "--out", f"bos-{name}.bin")
        wanted = [token for text in DOCUMENTS[:2 if name == "texts" else None] for token in tokenizer.encode(text).ids + [end]]
        found = read(f"bos-{name}.bin") if done.returncode == 0 else ()
        result(found and found[0] == wanted and found[2] == begin and found[4] == end + 1, f"{name}: from BOS to the end of text", [done.stderr])
    lengths = [len(tokenizer.encode(text).ids) for text in DOCUMENTS]  # BOS is an input, the end of text a target alone
    done = run(train, "--model", "bos", "--seq", "32", "--batch", "1", "--ranks", "1", "--threads", "1", "--steps", "1", "--sample", "0",
               "--peak-seconds", "0", "--pack", "documents", "--tokens", "bos-rows.bin", "--export", "bos-export")
    told = re.search(r"4 documents in (\d+) rows, ([0-9.]+) % padding", done.stdout)
    padding = 100 - 100 * sum(lengths) / (32 * int(told[1])) if told else 0
    result(told and abs(float(told[2]) - padding) < 0.06, "train packs them: inputs are all tokens but the last", [done.stdout[:600], lengths])
    with open("bos-export/config.json", encoding="utf-8") as file:
        ids = json.load(file)
    result(ids["eos_token_id"] == end, "the export's end of text is that of the token file, not its boundary", [ids])


def check_highest_number():
    """Numbers of tokens may have gaps: the highest one, and not their count, says how many bytes they take."""
    os.makedirs("gaps")
    with open("gaps/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump({"model": {"type": "WordLevel", "vocab": {"a": 0, "c": 1, "b": 70000}, "unk_token": "a"}, "added_tokens": [],
                   "pre_tokenizer": {"type": "Whitespace"}}, file)
    with open("gaps.txt", "w", encoding="utf-8") as file:
        file.write("a b c")
    done = run(python, tokenize, "gaps.txt", "--tokenizer", "gaps", "--boundary", "none", "--out", "gaps.bin")
    result(done.returncode == 0 and read("gaps.bin")[:2] == ([0, 70000, 1], 70001), "tokens with a number above their count are written",
           [done.stderr])


def check_not_whole():
    """A full disk, and a file with too many tokens, leave nothing, and name the file."""
    write_json_lines("many.jsonl", *({"text": "c" * 100} for _ in range(1000)))
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))
    done = run(python, tokenize, "many.jsonl", "--tokenizer", "bytes", "--out", "many.bin", before=limit)
    left = [name for name in os.listdir(".") if name.startswith("many.bin")]
    result(done.returncode == 2 and "many.bin.part: File too large" in done.stderr and not left, "a full disk leaves no part of a file",
           [done.stderr, left])
    sys.dont_write_bytecode = True
    tool = types.ModuleType("tokenize_tool")
    tool.__file__ = tokenize
    importlib.machinery.SourceFileLoader(tool.__name__, tokenize).exec_module(tool)
    tool.FILE_TOKENS_MAX = 10
    writer = tool.Writer(types.SimpleNamespace(out="long.bin", shard_tokens=0, overwrite=False), 9, 0, None, 0)
    writer.add([1] * 8, [True] * 8)
    try:
        writer.add([1] * 8, [True] * 8)
        told = "nothing"
    except tool.Refused as error:
        told = str(error)
    writer.give_up()
    left = [name for name in os.listdir(".") if name.startswith("long")]
    result("long.bin: a token file counts to" in told and not left, "a file with too many tokens is not left cut", [told, left])


def escaped(text):
    """What train prints of a text: control characters by their number."""
    return "".join(c if c.isprintable() or c in "\n\t" else "".join(f"\\x{byte:02x}" for byte in c.encode()) for c in text)


def check_sample(kind, tokenizer):
    common = [train, "--model", kind, "--seq", "16", "--batch", "1", "--ranks", "1", "--threads", "1", "--peak-seconds", "0",
              "--steps", "2", "--tokens", f"{kind}-texts.bin"]
    plain = run(*common, "--sample", "12", "--tokenizer", kind)
    os.rename(kind + "/tokenizer.json", "hidden.json")
    numbers = run(*common, "--sample", "12")
    os.rename("hidden.json", kind + "/tokenizer.json")
    found = re.search(r"up to the mark\):\n(.*)\|> (.*)\n", numbers.stdout)
    good = plain.returncode == 0 and numbers.returncode == 0 and found is not None
    if good:
        shown = plain.stdout.split("up to the mark):\n")[1].split("\nweights_hash")[0]
        parts = [[int(word) for word in group.split()] for group in found.groups()]
        given = escaped(tokenizer.decode(parts[0], skip_special_tokens=False))
        good = shown.startswith(given + "|>") if "\ufffd" not in given else "|>" in shown
    result(good, f"{kind}: train shows the sample as the library's text", [plain.stdout[-600:], plain.stderr, numbers.stdout[-400:]])


def check_refusals():
    for words, wanted in (
            (["0.txt", "--tokenizer", "none.json", "--out", "x.bin"], "none.json: cannot be read by tokenizers "),
            (["lines.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], 'lines.jsonl, line 1: has neither "text"'),
            (["broken.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], "broken.jsonl, line 2: is no JSON"),
            (["rows.parquet", "--text-key", "nope", "--tokenizer", "bytes", "--out", "x.bin"], "has neither a column nope"),
            (["latin.txt", "--tokenizer", "bytes", "--out", "x.bin"], "latin.txt: is no UTF-8: byte 2 is 0xfc"),
            (["latin.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], "latin.jsonl, line 2: is no UTF-8: byte 12 is 0xfc"),
            (["half.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], "half.jsonl, line 1: character 1 is half of one, '\\ud83d'"),
            (["null.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], 'line 1: "text" is null'),
            (["number.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], 'line 1: "completion" is 7, no text'),
            (["empty.txt", "--tokenizer", "bytes", "--out", "x.bin"], "hold no text"),
            (["none.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], 'line 1: "messages" is no list of messages'),
            (["word.jsonl", "--tokenizer", "bytes", "--assistant-only", "--out", "x.bin"], 'message 1 is no object with a "role"'),
            (["silent.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], 'silent.jsonl, line 1: message 2 has no "content"'),
            (["picture.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], 'line 1: message 1 has content that is no text: {"type": "image"}'),
            (["call.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], 'call.jsonl, line 1: has "tool_calls", but the chat template'),
            (["tools.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], 'tools.jsonl, line 1: has "tools", but the chat template'),
            (["list.json", "--tokenizer", "bytes", "--out", "x.bin"], "list.json: is JSON; write an object a line"),
            (["lines.jsonl", "--text-key", "body", "--assistant-only", "--tokenizer", "bytes", "--out", "x.bin"],
             'lines.jsonl, line 1: --assistant-only: has neither "messages" nor'),
            (["rows.parquet", "--assistant-only", "--tokenizer", "bytes", "--out", "x.bin"], "rows.parquet: has neither messages nor prompt"),
            (["0.txt", "--assistant-only", "--tokenizer", "bytes", "--out", "x.bin"], "0.txt: --assistant-only: is plain text"),
            (["chat.jsonl", "--tokenizer", "odd", "--out", "x.bin"], "chat.jsonl, line 1: the chat template fails: "),
            (["chat.jsonl", "--tokenizer", "cut", "--out", "x.bin"], "cut: the chat template, line 1: "),
            (["keys.jsonl", "--tokenizer", "bytes", "--out", "x.bin"], "but ?[31mred?[0m?line of its own;"),
            (["0.txt", "--tokenizer", "bytes", "--out", "bytes-texts.bin"], "exists"),
            (["0.txt", "--tokenizer", "bytes", "--boundary", "<no>", "--out", "x.bin"], "no token <no>")):
        done = run(python, tokenize, *words)
        left = [name for name in os.listdir(".") if name.startswith("x.bin")]
        result(done.returncode == 2 and wanted in done.stderr and not left, "refused: " + " ".join(words), [done.stderr, left])

    def template(folder, words):
        os.makedirs(folder, exist_ok=True)
        with open("bytes/tokenizer.json", "rb") as source, open(folder + "/tokenizer.json", "wb") as to:
            to.write(source.read())
        with open(folder + "/tokenizer_config.json", "w", encoding="utf-8") as file:
            json.dump({"eos_token": "<|end|>", "chat_template": words}, file)
        return run(python, tokenize, "chat.jsonl", "--tokenizer", folder, "--out", folder + ".bin")

    plain = template("several", [{"name": "tools", "template": "{{ 1 }}"}, {"name": "default", "template": "{{ messages[0].content }}"}])
    marked = template("marked", "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{% generation %}{{ m.content }}"
                      "{% endgeneration %}{% endfor %}")
    template("plain", "42 ranks?")
    same = [read(folder + ".bin")[0] == read("plain.bin")[0] for folder in ("several", "marked")]
    result(all(same), "the default of several templates is taken, and transformers' words for templates are known", [plain.stderr, marked.stderr])
    for name, data in {"mark.jsonl": b'\xef\xbb\xbf{"text": "a"}\r\n\r\n{"text": ""}\n{"text": "b\xe2\x80\xa8c"}', "mark.txt": b"\xef\xbb\xbfa",
                       "plain.txt": b"a", "MARK.JSONL": b'{"text": "a"}'}.items():
        with open(name, "wb") as file:
            file.write(data)
        done = run(python, tokenize, name, "--tokenizer", "bytes", "--out", "of-" + name.replace(".", "-") + ".bin")
        if done.returncode:
            print("# " + done.stderr)
    wanted = read("of-plain-txt.bin")[0]
    result(read("of-mark-jsonl.bin")[0][:2] == wanted == read("of-mark-txt.bin")[0] == read("of-MARK-JSONL.bin")[0] and
           read("of-mark-jsonl.bin")[0].count(wanted[0]) == 2, "marks of the byte order, ends of lines and names of files in capitals are all the same")
    common = [train, "--seq", "16", "--batch", "1", "--ranks", "1", "--peak-seconds", "0", "--steps", "1", "--sample", "0"]
    with open("others.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"messages": [{"role": "system", "content": "2 ranks share a model"}]}) + "\n" for _ in range(9))
    done = run(python, tokenize, "others.jsonl", "--assistant-only", "--tokenizer", "bytes", "--out", "others.bin")
    result(done.returncode == 2 and "none of its tokens counts" in done.stderr, "chats without an assistant do not count: it is told", [done.stderr])
    os.makedirs("nul")
    with open("bytes/config.json", encoding="utf-8") as source, open("nul/config.json", "w", encoding="utf-8") as file:
        file.write(source.read())
    with open("nul/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump({"model": {"type": "BPE", "vocab": {"\0": 0}, "merges": []}}, file)
    for words, wanted in ((["--model", "spaces", "--tokens", "bytes-texts.bin"], "another tokenizer than"),
                          (["--model", "nul", "--tokens", "bytes-texts.bin"], "another tokenizer than"),
                          (["--model", "spaces/config.json", "--tokens", "bytes-texts.bin"], "tools/tokenize --tokenizer spaces/tokenizer.json"),
                          (["--model", "bytes", "--tokens", "others.bin"], "--tokens others.bin: none of the tokens counts"),
                          (["--model", "bytes", "--tokens", "bytes-texts.bin", "--val-every", "1", "--val-tokens", "others.bin"],
                           "--val-tokens others.bin: none of the tokens counts"),
                          (["--model", "tiny", "--tokens", "bytes-texts.bin"], "was made with a tokenizer of"),
                          (["--model", "bytes", "--tokens", "bytes-texts.bin", "--tokenizer", "words"], "its decoder is"),
                          (["--model", "bytes", "--tokens", "bytes-texts.bin", "--tokenizer", "bytes/config.json"], "no \"model\""),
                          (["--model", "spaces", "--tokens", "spaces-texts.bin", "bytes-texts.bin"], "another tokenizer than the file")):
        done = run(*common, *words)
        result(done.returncode == 2 and wanted in done.stderr, "train refuses: " + " ".join(words), [done.stderr])


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    write_inputs()
    for own_kind in ("bytes", "spaces"):
        made = check_kind(own_kind)
        check_sample(own_kind, made)
        check_marks(own_kind, made)
        if own_kind == "bytes":
            check_templates(made)
            check_boundary(made)
            check_own_begin(made)
            check_bos(made)
            check_highest_number()
            check_not_whole()
    os.makedirs("words")
    with open("words/tokenizer.json", "w", encoding="utf-8") as out:
        out.write('{"model": {"vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}}')
    with open("broken.jsonl", "w", encoding="utf-8") as out:
        out.write('{"text": "a"}\n{"text":\n')
    for own_name, own_data in {
            "latin.txt": b"Gr\xfc\xdfe", "latin.jsonl": b'{"text": "a"}\n{"text": "Gr\xfc"}', "half.jsonl": b'{"text": "a\\ud83db"}',
            "null.jsonl": b'{"text": null}', "number.jsonl": b'{"prompt": "a", "completion": 7}', "empty.txt": b"",
            "list.json": b'[{"text": "a"}]', "picture.jsonl": b'{"messages": [{"role": "user", "content": [{"type": "image"}]}]}',
            "call.jsonl": b'{"messages": [{"role": "assistant", "content": null, "tool_calls": [1]}]}',
            "tools.jsonl": b'{"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "a"}]}',
            "none.jsonl": b'{"messages": []}', "word.jsonl": b'{"messages": ["a"]}',
            "keys.jsonl": b'{"\\u001b[31mred\\u001b[0m\\nline of its own": "a"}',
            "silent.jsonl": b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null}]}'}.items():
        with open(own_name, "wb") as out:
            out.write(own_data)
    for own_name, own_words in {"odd": "{{ messages[7].content.strip() }}", "cut": "{% for m in messages %}"}.items():
        os.makedirs(own_name)
        with open("bytes/tokenizer.json", "rb") as own_source, open(own_name + "/tokenizer.json", "wb") as out:
            out.write(own_source.read())
        with open(own_name + "/tokenizer_config.json", "w", encoding="utf-8") as out:
            json.dump({"eos_token": "<|end|>", "chat_template": own_words}, out)
    check_refusals()
finish()
