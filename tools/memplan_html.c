/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/job.h"
#include "tools/memplan_page.h"
#include "tools/options.h"

enum { CHOICES_MAX = 8 };

static const char *const recompute_names[4] = {"none", "cheap", "half of the blocks", "all"};

struct choices {
    uint32_t values[CHOICES_MAX], count;
};

static void add_choice(struct choices *c, uint64_t value, uint64_t most)
{
    if (value == 0 || value > most || c->count == CHOICES_MAX)
        return;
    uint32_t at = 0;
    while (at < c->count && c->values[at] < value)
        at++;
    if (at < c->count && c->values[at] == value)
        return;
    memmove(&c->values[at + 1], &c->values[at], (c->count - at) * sizeof(c->values[0]));
    c->values[at] = (uint32_t)value;
    c->count++;
}

/* Half, the asked one, twice and four times as much. */
static struct choices around(uint32_t value, uint32_t most)
{
    struct choices c = {.count = 0};
    add_choice(&c, value / 2, most);
    add_choice(&c, value, most);
    add_choice(&c, 2 * (uint64_t)value, most);
    add_choice(&c, 4 * (uint64_t)value, most);
    return c;
}

static void set_recompute(struct eo_memplan_settings *s, uint32_t index, uint32_t layer_count)
{
    s->recompute = index == 0 ? EO_RECOMPUTE_NONE : index == 1 ? EO_RECOMPUTE_CHEAP : EO_RECOMPUTE_BLOCKS;
    s->recompute_blocks = index == 2 ? (layer_count + 1) / 2 : layer_count;
}

static void plan_point(struct eo_page_point *point, const struct eo_memplan_view *view)
{
    struct eo_memplan_settings s = view->memplan->settings;
    struct eo_memplan m;
    struct eo_problem problem;
    s.world = point->world;
    s.batch = point->batch;
    s.seq = point->seq;
    s.head_chunks = 0;
    if (!s.outside.given)
        s.outside = (struct eo_outside){0};
    set_recompute(&s, point->recompute, view->config->layer_count);
    if (eo_memplan_create(&m, view->config, &s, &problem) < 0)
        return;
    point->planned = true;
    point->arena_bytes = m.summary.arena_bytes;
    point->lower_bound_bytes = m.summary.lower_bound_bytes;
    point->outside_bytes = m.outside_bytes;
    point->total_bytes = m.total_bytes;
    memcpy(point->category_bytes_at_peak, m.summary.category_bytes_at_peak, sizeof(point->category_bytes_at_peak));
    eo_memplan_fini(&m);
}

struct eo_page_point *eo_page_points(const struct eo_memplan_view *view, uint32_t *count)
{
    const struct eo_memplan_settings *s = &view->memplan->settings;
    const struct choices worlds = around(s->world, EO_MEMPLAN_WORLD_MAX), batches = around(s->batch, 1 << 20);
    const struct choices seqs = around(s->seq, view->config->context);
    struct eo_page_point *points = calloc((size_t)worlds.count * batches.count * seqs.count * 4, sizeof(*points));
    const uint64_t begun_ns = eo_job_now_ns();
    uint64_t shown_ns = begun_ns;
    const bool terminal = isatty(STDERR_FILENO);
    *count = 0;
    if (!points)
        return NULL;
    const uint32_t all = worlds.count * batches.count * seqs.count * 4;
    for (uint32_t i = 0; i < all; i++) {
        points[i] = (struct eo_page_point){
            .world = worlds.values[i / 4 / seqs.count / batches.count], .batch = batches.values[i / 4 / seqs.count % batches.count],
            .seq = seqs.values[i / 4 % seqs.count], .recompute = i % 4};
        plan_point(&points[i], view);
        const uint64_t now = eo_job_now_ns();
        if (now - begun_ns > 1000000000 && now - shown_ns > 500000000) {
            shown_ns = now;
            fprintf(stderr, terminal ? "\rplans for the page: %u of %u " : "plans for the page: %u of %u\n", i + 1, all);
        }
    }
    if (terminal && shown_ns != begun_ns)
        fprintf(stderr, "\r%40s\r", "");
    *count = all;
    return points;
}

/* --- the page ----------------------------------------------------------------------------------------------------- */

static const char head_text[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n"
    "<title>memory plan</title>\n<style>\n"
    ":root{color-scheme:light dark;--fg:#1b1f24;--bg:#fff;--soft:#f3f5f8;--line:#d5dae1;--good:#177245;--bad:#b3261e}\n"
    "@media (prefers-color-scheme:dark){:root{--fg:#e6e9ee;--bg:#14171c;--soft:#1e232a;--line:#3a414b;--good:#62c28e;"
    "--bad:#ff8a80}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:1240px;padding:16px;color:var(--fg);background:var(--bg);"
    "font:16px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.35rem;margin:.2em 0}h2{font-size:1.1rem;margin:1.4em 0 .4em}\n"
    ".panel{background:var(--soft);border:1px solid var(--line);border-radius:8px;padding:12px 16px}\n"
    ".sliders{display:grid;grid-template-columns:repeat(auto-fit,minmax(240px,1fr));gap:12px 24px}\n"
    "label{display:block}label output{font-weight:600}input[type=range]{width:100%;min-height:32px}\n"
    "input:focus-visible{outline:3px solid #4e79a7;outline-offset:2px}\n"
    ".total{font-size:1.7rem;font-weight:650}.fits{color:var(--good)}.lacks{color:var(--bad)}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\n"
    "th,td{text-align:right;padding:3px 8px;border-bottom:1px solid var(--line);white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left;white-space:normal}\n"
    ".bar{display:inline-block;height:.75em;background:#4e79a7;border-radius:2px}\n"
    ".picture svg{width:100%;min-width:720px;height:auto}pre{overflow-x:auto;font-size:.8rem}\n"
    "</style>\n</head>\n<body>\n";

static const char script_text[] =
    "'use strict';\n"
    "const plan=JSON.parse(document.getElementById('data').textContent),names=['world','batch','seq','recompute'];\n"
    "const gib=b=>(b/1073741824).toFixed(3)+' GiB',at=id=>document.getElementById(id);\n"
    "function chosen(){return names.map(n=>plan.choices[n][+at(n).value]);}\n"
    "function show(){\n"
    "  const want=chosen();\n"
    "  names.forEach((n,i)=>{const text=n==='recompute'?plan.recompute[want[i]]:String(want[i]);at(n+'-now').textContent=text;"
    "at(n).setAttribute('aria-valuetext',text);});\n"
    "  const p=plan.points.find(q=>q.k.every((v,i)=>v===want[i]));\n"
    "  const body=at('rows');body.textContent='';\n"
    "  if(!p||!p.total){at('total').textContent='cannot be planned';at('verdict').textContent='';return;}\n"
    "  at('total').textContent=gib(p.total);\n"
    "  const v=at('verdict');v.className='';v.textContent='';\n"
    "  if(plan.capacity){const left=plan.capacity-p.total;v.className=left<0?'lacks':'fits';"
    "v.textContent=left<0?'DOES NOT FIT: '+gib(-left)+' are lacking':'FITS, with '+gib(left)+' left';}\n"
    "  const lines=plan.categories.map((n,i)=>[n,p.c[i]]).filter(l=>l[1]);\n"
    "  lines.push(['lower bound (their sum)',p.low],['arena',p.arena],['outside the arena',p.out],['total',p.total]);\n"
    "  for(const [name,bytes] of lines){const tr=document.createElement('tr');\n"
    "    for(const text of [name,bytes.toLocaleString('en'),gib(bytes)]){const td=document.createElement('td');"
    "td.textContent=text;tr.append(td);}\n"
    "    const td=document.createElement('td'),bar=document.createElement('span');bar.className='bar';"
    "bar.style.width=Math.max(1,120*bytes/p.total).toFixed(1)+'px';td.style.textAlign='left';td.append(bar);tr.append(td);"
    "body.append(tr);}\n"
    "}\n"
    "names.forEach(n=>at(n).addEventListener('input',show));show();\n";

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '&' || *text == '>')
            fprintf(out, "&#%d;", *text);
        else
            fputc(*text, out);
}

static void put_slider(FILE *out, const char *name, const char *label, const struct choices *c, uint32_t value)
{
    uint32_t index = 0;
    for (uint32_t i = 0; i < c->count; i++)
        index = c->values[i] == value ? i : index;
    fprintf(out, "<label for=\"%s\">%s: <output id=\"%s-now\" for=\"%s\"></output>\n<input type=\"range\" id=\"%s\" min=\"0\" "
            "max=\"%u\" step=\"1\" value=\"%u\"></label>\n", name, label, name, name, name, c->count - 1, index);
}

static json_t *choices_json(const struct choices *c)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->count; i++)
        json_array_append_new(list, json_integer(c->values[i]));
    return list;
}

static struct choices recomputes(void)
{
    return (struct choices){.values = {0, 1, 2, 3}, .count = 4};
}

static uint32_t recompute_index(const struct eo_memplan_view *view)
{
    const struct eo_memplan_settings *s = &view->memplan->settings;
    if (s->recompute != EO_RECOMPUTE_BLOCKS)
        return s->recompute == EO_RECOMPUTE_CHEAP;
    return s->recompute_blocks >= view->config->layer_count ? 3 : 2;
}

static json_t *data_json(const struct eo_memplan_view *view, const struct eo_page_point *points, uint32_t count)
{
    const struct eo_memplan_settings *s = &view->memplan->settings;
    const struct choices worlds = around(s->world, EO_MEMPLAN_WORLD_MAX), batches = around(s->batch, 1 << 20);
    const struct choices seqs = around(s->seq, view->config->context), all = recomputes();
    json_t *list = json_array(), *categories = json_array(), *names = json_array();
    for (int c = 0; c < EO_CATEGORY_COUNT; c++)
        json_array_append_new(categories, json_string(eo_category_name((eo_category)c)));
    for (int r = 0; r < 4; r++)
        json_array_append_new(names, json_string(recompute_names[r]));
    for (uint32_t i = 0; i < count; i++) {
        const struct eo_page_point *p = &points[i];
        json_t *bytes = json_array();
        for (int c = 0; c < EO_CATEGORY_COUNT; c++)
            json_array_append_new(bytes, json_integer((json_int_t)p->category_bytes_at_peak[c]));
        json_array_append_new(list, json_pack("{s:[i, i, i, i], s:I, s:I, s:I, s:I, s:o}", "k", (int)p->world, (int)p->batch,
            (int)p->seq, (int)p->recompute, "arena", (json_int_t)p->arena_bytes, "low", (json_int_t)p->lower_bound_bytes,
            "out", (json_int_t)p->outside_bytes, "total", (json_int_t)p->total_bytes, "c", bytes));
    }
    return json_pack("{s:I, s:o, s:o, s:{s:o, s:o, s:o, s:o}, s:o}", "capacity", (json_int_t)s->capacity_bytes, "categories",
        categories, "recompute", names, "choices", "world", choices_json(&worlds), "batch", choices_json(&batches), "seq",
        choices_json(&seqs), "recompute", choices_json(&all), "points", list);
}

static void put_report(FILE *out, const struct eo_memplan_view *view)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory)
        return;
    eo_report_plan(memory, view);
    eo_report_explain(memory, view);
    fclose(memory);
    fprintf(out, "<h2>The report, with every formula</h2>\n<pre class=\"panel\" tabindex=\"0\">");
    put_escaped(out, text);
    fprintf(out, "</pre>\n");
    free(text);
}

void eo_page_html(FILE *out, const struct eo_memplan_view *view, const struct eo_page_point *points, uint32_t count)
{
    const struct eo_memplan_settings *s = &view->memplan->settings;
    const struct choices worlds = around(s->world, EO_MEMPLAN_WORLD_MAX), batches = around(s->batch, 1 << 20);
    const struct choices seqs = around(s->seq, view->config->context), all = recomputes();
    char strategy[32];
    eo_strategy_text(s->strategy, s->hsdp_group, strategy, sizeof(strategy));
    fputs(head_text, out);
    fprintf(out, "<h1>");
    put_escaped(out, view->config->source);
    fprintf(out, ": memory of one rank</h1>\n<p>%s, %" PRIu64 " parameters, %s, %s%s.</p>\n",
            eo_config_family_name(view->config->family), view->memplan->summary.element_count,
            strategy, eo_dtype_text(s->dtype),
            view->memplan->runs ? "" : "; planned, not run");
    fprintf(out, "<section class=\"panel\" aria-label=\"settings\"><div class=\"sliders\">\n");
    put_slider(out, "world", "ranks", &worlds, s->world);
    put_slider(out, "batch", "sequences a rank", &batches, s->batch);
    put_slider(out, "seq", "tokens a sequence", &seqs, s->seq);
    put_slider(out, "recompute", "recompute", &all, recompute_index(view));
    fprintf(out, "</div>\n<p aria-live=\"polite\"><span class=\"total\" id=\"total\"></span> <span id=\"verdict\"></span></p>\n"
            "<div class=\"wide\"><table><thead><tr><th>live at the peak</th><th>bytes</th><th>GiB</th><th></th></tr></thead>"
            "<tbody id=\"rows\"></tbody></table></div>\n<p>%u plan%s, each made by the planner that the runtime "
            "uses.</p></section>\n",
            count, eo_plural(count));
    fprintf(out, "<h2>The arena through a step</h2>\n<p>%u rank%s, %u x %u tokens, as asked; hover over a rectangle for its "
            "name.</p>\n<div class=\"wide picture\" tabindex=\"0\">\n", s->world, eo_plural(s->world), s->batch, s->seq);
    eo_page_svg(out, view);
    fprintf(out, "</div>\n");
    put_report(out, view);
    json_t *data = data_json(view, points, count);
    char *text = data ? json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    fprintf(out, "<script type=\"application/json\" id=\"data\">%s</script>\n<script>\n%s</script>\n</body>\n</html>\n",
            text ? text : "{}", script_text);
    free(text);
    json_decref(data);
}
