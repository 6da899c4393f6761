# SPDX-License-Identifier: MIT
# awk -f embed.awk FILE...: a C header with the text of each file, licences apart: page.css becomes page_css.
BEGIN { print "#pragma GCC system_header /* texts are longer than C11 promises to take */" }
FNR == 1 {
    name = FILENAME
    sub(".*/", "", name)
    gsub(/[^a-z0-9]/, "_", name)
    printf "%sstatic const char %s[] =\n", (NR > 1 ? ";\n" : ""), name
}
/SPDX-License-Identifier/ { next }
{
    gsub(/\\/, "&&") # a \ doubled
    gsub(/"/, "\\\\&")
    printf "\"%s\\n\"\n", $0
}
END { print ";" }
