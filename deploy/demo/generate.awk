# Reads functions.txt and writes, below the directory in the variable "out", a
# library of shell functions with their tests, and the issues that people have
# with it. The same input gives the same files.
#
# Three functions of five have a fault that the library's own tests do not show.
# Each has an issue; so has each function that is only wanted.

BEGIN {
	fence = "```"
	color["bug"] = "d73a4a"
	color["enhancement"] = "a2eeef"
}

/^#/ || NF == 0 { next }

{
	kind = $1; topic = $2; file = $3; name = $4; a = $5; b = $6
	wanted = topic == "wanted"
	if (wanted) {
		topic = home[kind]
	} else {
		home[kind] = topic
		seen[kind]++
	}
	lib = "lib/" topic "/" file ".sh"
	test = "test/" topic "/" file "_test.sh"
	examples()
	if (wanted) {
		issue("Add " name, want_body(), "enhancement")
		next
	}
	faulty = faults < 84 && seen[kind] % 5 != 2 && seen[kind] % 5 != 4
	if (faulty) faults++
	write_function(faulty)
	if (faulty) issue(name " is wrong for `" first_call() "`", bug_body(), "bug")
}

END {
	for (i = 1; i <= issues; i++) printf "%s%s\n", entry[i], i < issues ? "," : "" > (out "/issues.body")
	for (path in written) close(path)
}

# examples sets call[1..2] and want[1..2], which a faulty function gets wrong,
# and good[1..] and is[1..], which it gets right.
function examples(   c) {
	split("", good); split("", is); goods = 1
	if (kind == "factor") {
		both(3, 3 * a, 10, 10 * a); keep(1, 0, 0)
	} else if (kind == "ratio") {
		both(6 * a, 6, 15 * a, 15); keep(1, 0, 0)
	} else if (kind == "series") {
		both(3, sum(3), 5, sum(5)); keep(1, 0, 0)
	} else if (kind == "range") {
		call[1] = call[2] = b; want[1] = want[2] = "yes"
		keep(1, a, "yes"); keep(2, b + 1, "no"); keep(3, a - 1, "no")
	} else if (kind == "pick") {
		both("3 8 5", a == "-gt" ? 8 : 3, "40 7 22", a == "-gt" ? 40 : 7); keep(1, 6, 6)
	} else if (kind == "cut") {
		c = b; gsub(/\*/, "", c)
		both("one" c "two" c "three", cut("one", "two", "three", c), "x" c "y" c "z", cut("x", "y", "z", c))
		keep(1, "one" c "two", substr(a, 1, 1) == "%" ? "one" : "two")
	} else if (kind == "line") {
		both(1, repeat(1), 4, repeat(4)); keep(1, 0, "")
	}
}

function both(c1, w1, c2, w2) { call[1] = c1; want[1] = w1; call[2] = c2; want[2] = w2 }
function keep(n, c, w) { good[n] = c; is[n] = w; goods = n }
function first_call() { return name " " call[1] }

function repeat(n,   s) { while (n-- > 0) s = s a; return s }

function cut(x, y, z, c) {
	if (a == "%") return x c y
	if (a == "%%") return x
	if (a == "#") return y c z
	return z
}

# sum adds up the terms of a series as the shell would.
function sum(n,   i, total) {
	for (i = 1; i <= n; i++) {
		if (a == "i") total += i
		else if (a == "i*i") total += i * i
		else if (a == "i*i*i") total += i * i * i
		else if (a == "i*i*i*i") total += i * i * i * i
		else if (a == "4*i*i") total += 4 * i * i
		else if (a == "2*i-1") total += 2 * i - 1
		else if (a == "(2*i-1)*(2*i-1)") total += (2 * i - 1) * (2 * i - 1)
		else if (a == "i*(i+1)") total += i * (i + 1)
		else if (a == "i*(i+1)/2") total += i * (i + 1) / 2
		else if (a == "i*(3*i-1)/2") total += i * (3 * i - 1) / 2
		else if (a == "i*(2*i-1)") total += i * (2 * i - 1)
		else if (a == "i*(3*i-2)") total += i * (3 * i - 2)
		else if (a ~ /^[0-9]+\*i$/) total += a * i # awk reads the leading number
		else { print "generate: no such series: " a > "/dev/stderr"; exit 1 }
	}
	return total
}

# source is the function's text, with its fault or without.
function source(fault,   op) {
	if (kind == "factor" || kind == "ratio") {
		op = (kind == "factor") != fault ? "*" : "/"
		return name "() {\n\techo $(($1 " op " " a "))\n}\n"
	}
	if (kind == "series")
		return name "() {\n\ttotal=0\n\ti=1\n\twhile [ \"$i\" " (fault ? "-lt" : "-le") " \"$1\" ]; do\n" \
			"\t\ttotal=$((total + " a "))\n\t\ti=$((i + 1))\n\tdone\n\techo \"$total\"\n}\n"
	if (kind == "range")
		return name "() {\n\tif [ \"$1\" -ge " a " ] && [ \"$1\" " (fault ? "-lt" : "-le") " " b " ]; then\n" \
			"\t\techo yes\n\telse\n\t\techo no\n\tfi\n}\n"
	if (kind == "pick") {
		op = a
		if (fault) op = a == "-gt" ? "-lt" : "-gt"
		return name "() {\n\tbest=$1\n\tfor one in \"$@\"; do\n\t\tif [ \"$one\" " op " \"$best\" ]; then\n" \
			"\t\t\tbest=$one\n\t\tfi\n\tdone\n\techo \"$best\"\n}\n"
	}
	if (kind == "cut") {
		op = a
		if (fault) op = length(a) == 2 ? substr(a, 1, 1) : a a
		return name "() {\n\techo \"${1" op b "}\"\n}\n"
	}
	return name "() {\n\tline=\n\ti=" (fault ? 1 : 0) "\n\twhile [ \"$i\" -lt \"$1\" ]; do\n" \
		"\t\tline=\"$line\"'" a "'\n\t\ti=$((i + 1))\n\tdone\n\techo \"$line\"\n}\n"
}

function write_function(fault,   path, n) {
	path = out "/repo/" lib
	if (!(path in written)) {
		written[path] = 1
		printf "# shellcheck shell=sh\n" > path
	}
	printf "\n%s", source(fault) > path

	path = out "/repo/" test
	if (!(path in written)) {
		written[path] = 1
		printf ". ./test/expect.sh\n. ./%s\n", lib > path
	}
	for (n = 1; n <= goods; n++) printf "expect '%s' %s %s\n", is[n], name, good[n] > path

	path = out "/repo/docs/" topic ".md"
	if (!(path in written)) {
		written[path] = 1
		printf "# %s\n\n", topic > path
	}
	printf "- `%s` in `%s`\n", name, lib > path
}

function should(n) { return "`" name " " call[n] "` should print `" want[n] "`.\n" }

function bug_body(   n) {
	n = call[1] == call[2] ? 1 : 2
	return "I get something else from `" name "`:\n\n" should(1) (n == 2 ? should(2) : "") \
		"\nThe function is in `" lib "`, its tests are in `" test "`, and they pass.\n"
}

function want_body() {
	return "I need `" name "` and would put it into `" lib "`:\n\n" should(1) (call[1] == call[2] ? "" : should(2)) \
		"\nThis works for me:\n\n" fence "sh\n" source(0) fence "\n"
}

# issue adds one element in the form of: gh issue list --json number,title,body,url,labels
function issue(title, body, label) {
	entry[++issues] = sprintf("  {\"body\":%s,\"labels\":[{\"id\":\"%s\",\"name\":\"%s\",\"description\":\"\",\"color\":\"%s\"}]," \
		"\"number\":%d,\"title\":%s,\"url\":\"https://github.com/example/shelf/issues/%d\"}",
		json(body), label, label, color[label], issues, json(title), issues)
}

function json(text) {
	gsub(/\\/, "\\\\", text)
	gsub(/"/, "\\\"", text)
	gsub(/\t/, "\\t", text)
	gsub(/\n/, "\\n", text)
	return "\"" text "\""
}
