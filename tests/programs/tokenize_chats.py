# SPDX-License-Identifier: MIT
#
# Goal: chats and completions become the text that transformers makes of them, and the assistant's words with their end count.
# Method: a tokenizer of single bytes, a few pairs and special tokens; templates of the kinds that models have. The wanted text is
#         written out, its counted parts in « », and where transformers is installed it renders the same chats. Needs a python with
#         tokenizers, pyarrow, jinja2 and numpy: that of EO_PEERS_PYTHON, else it is skipped.
# usage: tokenize_chats.py TOKENIZE
import itertools
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../tap"))
from peers import enter_or_skip, python
from tap import finish, result

tokenize = os.path.realpath(sys.argv[1])
enter_or_skip("tokenizers, pyarrow, jinja2, numpy")

import numpy
import pyarrow
import pyarrow.parquet
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

try:
    os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1")
    import transformers
except ImportError:
    transformers = None

PAIRS = ["Ab", "ĠY"]  # tokens of two bytes
SPECIAL = ["<s>", "</s>", "<|user|>", "<|bot|>", "<think>"]
MISTRAL = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% else %}{{ m.content }}{{ eos_token }}{% endif %}"
           "{% endfor %}")
USER, BOT = {"role": "user", "content": "Q"}, {"role": "assistant", "content": "Ab"}
CHAT = {"messages": [USER, BOT]}
PAIR = {"prompt": "Q", "completion": "Ab"}


def make_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({word: at for at, word in enumerate(alphabet + PAIRS)}, [tuple(pair) for pair in PAIRS]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


TOKENIZER = make_tokenizer()
numbers = itertools.count()


def make_folder(template, settings=None, adds_bos=False, **files):
    folder = f"model-{next(numbers)}"
    os.makedirs(folder)
    tokenizer = tokenizers.Tokenizer.from_str(TOKENIZER.to_str())
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    tokenizer.save(folder + "/tokenizer.json")
    base = {"eos_token": "</s>", "bos_token": "<s>", **({"chat_template": template} if template else {})}
    for name, value in {"tokenizer_config.json": {**base, **(settings or {})}, **files}.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))
    return folder


def run(folder, records, *words):
    out = f"{folder}-{next(numbers)}"
    with open(out + ".jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    done = subprocess.run([python, tokenize, out + ".jsonl", "--tokenizer", folder, "--out", out + ".bin", *words],
                          capture_output=True, text=True, check=False, timeout=120)
    return done, out + ".bin"


def show(path):
    """The text of a token file, its counted parts in « »."""
    with open(path, "rb") as file:
        data = file.read()
    count, = struct.unpack("<I", data[8:12])
    tokens = numpy.frombuffer(data[1024:1024 + 2 * count], "<u2").tolist()
    marks = [1] * count
    if struct.unpack("<I", data[32:36])[0]:
        marks = numpy.unpackbits(numpy.frombuffer(data[1024 + 2 * count:], "u1"), bitorder="little")[:count].tolist()
    text = ""
    for counts, pairs in itertools.groupby(zip(tokens, marks), lambda pair: pair[1]):
        run_text = TOKENIZER.decode([token for token, _ in pairs], skip_special_tokens=False)
        text += f"«{run_text}»" if counts else run_text
    return text


def check(name, folder, records, wanted, *words, warning=""):
    done, path = run(folder, records, *words)
    shown = show(path) if done.returncode == 0 else ""
    result(shown == wanted and (warning in done.stderr if warning else not done.stderr), name, [shown, done.stderr])


def refuse(name, folder, records, wanted, *words):
    done, _ = run(folder, records, *words)
    result(done.returncode == 2 and wanted in done.stderr and "Traceback" not in done.stderr, name, [done.stderr])


def check_transformers(name, folder, records):
    """The end of text stands before each, where the template does not begin with one of its own."""
    if transformers:
        made = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        texts = [made.apply_chat_template(record["messages"], tools=record.get("tools"), tokenize=False) for record in records]
        check(name + ", as transformers has them", folder, records,
              f"«{''.join(text if text.startswith('<s>') else '</s>' + text for text in texts)}»")


def check_ends():
    """A completion ends with the end of text, whichever token the documents begin with."""
    folder = make_folder(MISTRAL, {"add_bos_token": True})
    check("a completion behind a chat ends with the end of text", folder, [CHAT, PAIR], "«<s>[Q]Ab</s>»<s>Q«Ab</s>»")
    check("a completion before a chat does so, too", folder, [PAIR, CHAT], "</s>Q«Ab</s></s><s>[Q]Ab</s>»")


def check_bos():
    """Where the tokenizer itself puts BOS before texts, all documents begin with it, and texts and completions end with the end of text."""
    records = [{"text": "Q"}, PAIR, {"text": "Ab"}]
    folder = make_folder(MISTRAL, adds_bos=True)
    wanted = "«<s>Q</s>»<s>Q«Ab</s><s>Ab</s>»"
    check("a tokenizer with BOS: documents go from BOS to the end of text", folder, records, wanted)
    check("so they do with its BOS as --boundary", folder, records, wanted, "--boundary", "<s>")
    check("another --boundary stands in its place; where it is the end of text, it ends texts", folder, records, "«</s>Q»</s>Q«Ab</s></s>Ab»",
          "--boundary", "</s>")
    check("with --boundary none there is no end either", folder, records, "«Q»Q«AbAb»", "--boundary", "none")
    check("its chats have one BOS", folder, [CHAT, *records], "«<s>[Q]Ab</s>" + wanted[1:])
    if transformers:
        made = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        texts = [made.decode(made(text)["input_ids"]) for text in ("Q", "QAb", "Ab")]
        result(texts == ["<s>Q", "<s>QAb", "<s>Ab"], "so transformers begins them", texts)
    lone = make_folder(None, adds_bos=True)
    os.remove(lone + "/tokenizer_config.json")
    check("a lone tokenizer.json says so by its post-processor", lone, records, wanted)
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    check("chats whose template writes none begin with it, too", make_folder(plain, adds_bos=True), [CHAT], "«<s>QAb»")
    turns = "{% for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{% endfor %}"
    check("but not where it stands between turns", make_folder(turns, adds_bos=True), [CHAT], "«</s><s>Q</s><s>Ab</s>»",
          warning="1 of 1 documents hold the boundary </s>")
    check("BOS that is the end of text is one boundary", make_folder(None, {"eos_token": "<s>"}, adds_bos=True), records, "«<s>Q»<s>Q«Ab<s><s>Ab»")
    folder = make_folder(MISTRAL, {"add_bos_token": True})
    check("a tokenizer without: the boundary ends texts and completions", folder, records, "«</s>Q»</s>Q«Ab</s></s>Ab»")
    check("so does another --boundary", folder, records, "«<s>Q»<s>Q«Ab<s><s>Ab»", "--boundary", "<s>")
    check("of texts behind chats the end is written", folder, [CHAT, {"text": "Q"}], "«<s>[Q]Ab</s><s>Q</s>»")


def check_keys():
    """Nulls reach no template: not as the word None, nor as a key that is there. All names of thinking do."""
    folder = make_folder("{% for m in messages %}{{ m.content }}{% if m.name is defined %}({{ m.name }}){% endif %}{% endfor %}")
    nulls = {"messages": [{**USER, "name": None, "tool_calls": None}, {**BOT, "name": "b"}]}
    check("a message's nulls are left out", folder, [nulls], "«</s>QAb(b)»")
    check_transformers("nulls", folder, [nulls])
    pyarrow.parquet.write_table(pyarrow.table({"messages": [nulls["messages"]]}), "nulls.parquet")
    done = subprocess.run([python, tokenize, "nulls.parquet", "--tokenizer", folder, "--out", "nulls.bin"], capture_output=True, text=True,
                          check=False, timeout=120)
    shown = show("nulls.bin") if done.returncode == 0 else ""
    result(shown == "«</s>QAb(b)»", "Parquet's nulls, too", [shown, done.stderr])
    for read in "reasoning_content", "thinking":
        folder = make_folder("{% for m in messages %}{{ m.content }}{% if m." + read + " is defined %}({{ m." + read + " }}){% endif %}{% endfor %}")
        chats = [{"messages": [{**USER, key: None}, {**BOT, key: "hm"}]} for key in ("reasoning_content", "thinking", "reasoning")]
        check(f"templates find all names of thinking as {read}", folder, chats, f"«{'</s>QAb(hm)' * 3}»")
        check_transformers(f"{read} of all names", folder, chats)


def check_borders():
    """A completion is encoded behind its prompt, as it stands in the text; a token across the border counts."""
    folder = make_folder(MISTRAL)
    joined = {"prompt": "Q:A", "completion": "b Y"}
    check("the token across the border of a completion counts", folder, [joined], "</s>Q:«Ab Y</s>»")
    check("an empty completion is its end", folder, [{"prompt": "Q", "completion": ""}], "</s>Q«</s>»")
    spaces = make_folder(None)
    with open(spaces + "/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump({"model": {"type": "WordLevel", "vocab": {"Q": 0, "Y": 1, "\u2581Q": 2, "\u2581Y": 3, "?": 4}, "unk_token": "?"}, "added_tokens": [],
                   "normalizer": {"type": "Prepend", "prepend": "\u2581"}, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\u2581?."},
                                                                                          "behavior": "Isolated", "invert": False}}, file)
    with open(spaces + "/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "LlamaTokenizer"}, file)
    done, path = run(spaces, [{"prompt": "Q", "completion": "Y"}], "--boundary", "Q")
    with open(path, "rb") as file:
        tokens = struct.unpack("<4H", file.read()[1024:1032])
    result(tokens == (0, 2, 1, 0), "no space comes before a completion", [done.stderr, tokens])
    result("transformers 5 builds LlamaTokenizer anew" in done.stderr, "other tokens of transformers are told", [done.stderr])


def check_turns():
    """What a model is to write counts: from behind the prompt, though that begins thoughts, to the token at the end of its turn."""
    more = {"messages": [USER, BOT, USER, {**BOT, "content": "c\n"}]}
    turns = "{% for m in messages %}<|{{ 'bot' if m.role == 'assistant' else 'user' }}|>{{ m.content }}{% endfor %}"
    folder = make_folder(turns + "{% if add_generation_prompt %}<|bot|>{% endif %}")
    check("the token that begins the next turn ends the one before", folder, [more], "</s><|user|>Q<|bot|>«Ab<|user|>»Q<|bot|>«c\n»",
          "--assistant-only", warning="warning: of 1 messages")
    folder = make_folder(MISTRAL)
    check("a turn with an end of its own stays as it is", folder, [more], "<s>[Q]«Ab</s>»[Q]«c\n</s>»", "--assistant-only")
    begins = turns.replace("{% endfor", "</s>\n{% endfor") + "{% if add_generation_prompt %}<|bot|><think>\n{% endif %}"
    thoughts = {"messages": [USER, {**BOT, "content": "<think>\nhm"}]}
    folder = make_folder(begins)
    check("a prompt that begins thoughts ends where the answer begins", folder, [CHAT, thoughts],
          "<s><|user|>Q</s>\n<|bot|>«Ab</s>\n»<s><|user|>Q</s>\n<|bot|><think>\n«hm</s>\n»", "--assistant-only")
    folder = make_folder("{% for m in messages %}{{ m.content }}{% if m.role == 'user' %}:A{% endif %}{% endfor %}")
    check("a token across the border of a chat counts", folder, [{"messages": [USER, {**BOT, "content": "b"}]}], "</s>Q:«Ab»", "--assistant-only",
          warning="no special token")
    folder = make_folder("{% for m in messages %}{{ m.content }}{% endfor %}{{ '?' if add_generation_prompt else '!' }}")
    refuse("a template with other words before an answer is refused", folder, [CHAT], "take one with {% generation %}", "--assistant-only")


def check_lists():
    """Templates that take lists of texts get them; others get one text."""
    parts = {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "Q ", "image": None},
                                                                                         {"type": "text", "text": " R"}]}, BOT]}
    listed = "{% for c in m.content %}{% if 'image' in c %}!{% endif %}{{ c.text | trim }}{% endfor %}"
    both = make_folder("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}" + listed + "{% endif %}{% endfor %}")
    check("a list of texts reaches templates that take lists", both, [parts, CHAT], "«</s>SQRAb</s>QAb»")
    alone = make_folder("{% for m in messages %}" + listed + "{% endfor %}")
    check("templates that take lists alone get them of texts, too", alone, [parts, CHAT], "«</s>SQRAb</s>QAb»")
    for words in "{{ m.content }}", "{{ m.content | tojson }}":
        folder = make_folder("{% for m in messages %}" + words + "{% endfor %}")
        quote = '"' if "json" in words else ""
        check("other templates get one text: " + words, folder, [parts], "«</s>" + "".join(quote + text + quote for text in ("S", "Q  R", "Ab")) + "»")


def check_settings():
    """Special tokens and templates come from where transformers takes them."""
    template = "{{ bos_token }}{{ turn_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    files = {"special_tokens_map.json": {"bos_token": {"content": "<|bot|>", "lstrip": False}}}
    settings = {"extra_special_tokens": {"turn_token": "<|user|>"}}
    folder = make_folder(template, settings, **files)
    check("special_tokens_map.json and named tokens are known", folder, [CHAT], "«</s><|bot|><|user|>QAb»")
    if transformers:
        text = transformers.PreTrainedTokenizerFast.from_pretrained(folder).apply_chat_template(CHAT["messages"], tokenize=False)
        result(text == "<|bot|><|user|>QAb", "and to transformers", [text])
    folder = make_folder(template, {**settings, "added_tokens_decoder": {}}, **files)
    check("a folder of its own added tokens needs no special_tokens_map.json", folder, [CHAT], "«</s><s><|user|>QAb»")
    folder = make_folder(None, **{"tokenizer_config.json": {"eos_token": "</s>", "chat_template": template}})
    refuse("a template that writes a token without a value is refused", folder, [CHAT], "the chat template writes bos_token")
    folder = make_folder(template, {"bos_token": None})
    check("a token may be null", folder, [CHAT], "«</s>QAb»")
    tools = {**CHAT, "tools": [{"name": "T"}]}
    plain, used = "{# no tools #}{% for m in messages %}{{ m.content }}{% endfor %}", "{{ tools[0].name }}{% for m in messages %}{{ m.content }}{% endfor %}"
    refuse("tools in a template's comment are no tools", make_folder(plain), [tools], 'has "tools", but the chat template')
    folder = make_folder([{"name": "default", "template": plain}, {"name": "tool_use", "template": used}])
    check("chats with tools take the template of this use", folder, [tools, CHAT], "«</s>TQAb</s>QAb»")
    check_transformers("the template with tools", folder, [tools, CHAT])
    folder = make_folder("", **{"chat_template.jinja": plain})
    os.makedirs(folder + "/additional_chat_templates")
    with open(folder + "/additional_chat_templates/tool_use.jinja", "w", encoding="utf-8") as file:
        file.write(used)
    check("so they do, where it is a file", folder, [tools, CHAT], "«</s>TQAb</s>QAb»")
    check_transformers("the file of a template with tools", folder, [tools, CHAT])


def check_refusals():
    """Faults of others end with a word, and no traceback."""
    refuse("a template that divides by 0 is refused", make_folder("{{ 1 // 0 }}"), [CHAT], "line 1: the chat template fails: integer division")
    for token in {"content": "<think>", "lstrip": True}, {"content": "<other>"}, 7:
        folder = make_folder(MISTRAL, {"added_tokens_decoder": {TOKENIZER.token_to_id("<think>"): token}})
        refuse(f"settings with another token than the tokenizer's are refused: {token}", folder, [PAIR], "save the tokenizer again")
    folder = make_folder(MISTRAL, {"added_tokens_decoder": {TOKENIZER.token_to_id("<think>"): {"content": "<think>", "special": False}}})
    check("settings with the tokenizer's own are taken", folder, [CHAT], "«<s>[Q]Ab</s>»")
    os.makedirs("old/tokenizers-0.15.2.dist-info")
    with open("old/tokenizers-0.15.2.dist-info/METADATA", "w", encoding="utf-8") as file:
        file.write("Metadata-Version: 2.1\nName: tokenizers\nVersion: 0.15.2\n")
    os.environ.update(PYTHONPATH=os.path.realpath("old"), EO_TOKENIZE_ENTERED="1")
    refuse("an old tokenizers is not taken", folder, [PAIR], "has no tokenizers >= 0.21;")
    del os.environ["PYTHONPATH"], os.environ["EO_TOKENIZE_ENTERED"]
    called = {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{"name": "T"}]}]}
    refuse("a template that needs a call's content tells so", make_folder("{% for m in messages %}{{ m.content + '' }}{% if m.tool_calls %}c{% endif %}"
                                                                          "{% endfor %}"), [called], "has no attribute 'content'")
    refuse("a special token that is a list is refused", make_folder(MISTRAL, {"eos_token": ["</s>"]}), [PAIR], '"eos_token" is ["</s>"], no text')
    folder = make_folder(None)
    with open(folder + "/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump({"model": {"type": "WordLevel", "vocab": {"Q": 0}, "unk_token": "?"}, "added_tokens": []}, file)
    refuse("a text that the tokenizer has no word for is refused", folder, [PAIR], "cannot take the text: WordLevel error", "--boundary", "Q")


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    check_ends()
    check_bos()
    check_keys()
    check_borders()
    check_turns()
    check_lists()
    check_settings()
    check_refusals()
finish()
