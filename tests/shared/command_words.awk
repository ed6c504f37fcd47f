# Prints "FILE:LINE WORD" for each word of a shell script that stands where a command is called, and
# "FILE:LINE function NAME" for each function that it defines. What is in quotes or in a here-document
# is passed over, but for the commands of $(...) in double quotes.

BEGIN {
    split("if then else elif while until do ! { time exec", list, " ")
    for (i in list) leads[list[i]] = 1 # a command follows
    top = 0
    mode[0] = "command"
}

FNR == 1 { first = 1; top = 0; end_of = ""; patterns = 0 }

end_of != "" { # in a here-document
    line = $0
    sub(/^\t*/, "", line)
    if (line == end_of) end_of = ""
    next
}

{
    text = $0 "\n"
    for (at = 1; at <= length(text); at++) step(substr(text, at, 1))
    if (wanted_end != "") { end_of = wanted_end; wanted_end = "" }
}

function rest(pattern) { return match(substr(text, at), "^" pattern) ? RLENGTH : 0 }

function finish() { # a word ends
    if (word == "") return
    w = word
    word = ""
    if (target) { target = 0; return } # of a redirection
    if (patterns == 2) { if (w == "in") patterns = 1; return } # case WORD in
    if (!first) return
    if (w in leads) return
    first = 0
    if (w == "case") { patterns = 2; return }
    if (w == "for") return
    if (w ~ /^[A-Za-z_][A-Za-z_0-9]*=/) { first = 1; return }
    if (w ~ /^[A-Za-z_][A-Za-z0-9_.+-]*$/) print FILENAME ":" FNR, w
}

function step(c) {
    if (mode[top] == "single") { if (c == "'") top--; return }
    if (mode[top] == "arithmetic") { if (rest("[)][)]")) { at++; top-- } return }
    if (mode[top] == "braces") {
        if (c == "\\") at++
        else if (c == "{") deep[top]++
        else if (c == "}" && deep[top]-- == 0) top--
        return
    }
    if (c == "\\") { if (substr(text, at + 1, 1) != "\n") word = word "Q/"; at++; return }
    if (c == "$") {
        if (rest("[$][(][(]")) { at += 2; word = word "Q/"; mode[++top] = "arithmetic"; return }
        if (rest("[$][(]")) { at++; open("command"); return }
        if (rest("[$][{]")) { at++; word = word "Q/"; mode[++top] = "braces"; deep[top] = 0; return }
        if (rest("[$]['\"]")) return
        word = word "Q/"
        return
    }
    if (mode[top] == "double") { if (c == "\"") close_one(); return }
    if (c == "'") { word = word "Q/"; mode[++top] = "single"; return }
    if (c == "\"") { word = word "Q/"; open("double"); return }
    if (c ~ /[ \t]/) { finish(); return }
    if (c == "#" && word == "") { at = length(text) - 1; return }
    if ((n = rest("<<-?[\\\\]?['\"]?[A-Za-z_]+['\"]?"))) {
        wanted_end = substr(text, at, n)
        gsub(/[^A-Za-z_]/, "", wanted_end)
        at += n - 1
        return
    }
    if (c ~ /[<>]/) {
        if (word ~ /^[0-9]$/) word = ""
        finish()
        at += rest("[<>]+[|]?&?") - 1
        target = 1
        return
    }
    if (c == "(") {
        if (word != "" && rest("[(][)]")) { # a function
            print FILENAME ":" FNR, "function", word
            word = ""
            at++
            first = 1
            return
        }
        finish()
        open("command")
        return
    }
    if (c == ")") {
        finish()
        if (patterns == 1) { patterns = 0; first = 1 }
        else if (top > 0) close_one()
        return
    }
    if (c ~ /[;&|\n]/) {
        finish()
        target = 0
        if (patterns == 1) { first = 0; return }
        if (rest(";;")) { at++; patterns = 1; first = 0; return }
        first = 1
        return
    }
    word = word c
    # The end of a case has no pattern.
    if (patterns == 1 && word == "esac") { patterns = 0; word = ""; first = 0 }
}

# Inside of $(...), (...) and "..." the words begin anew; behind it the word outside goes on.
function open(kind) {
    outer[++top] = word
    outer_first[top] = first
    outer_patterns[top] = patterns
    mode[top] = kind
    word = ""
    patterns = 0
    first = kind == "command"
}
function close_one() {
    finish()
    word = outer[top] (mode[top] == "command" ? "Q/" : "")
    first = outer_first[top]
    patterns = outer_patterns[top]
    top--
}
