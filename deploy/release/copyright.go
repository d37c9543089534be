package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// copyright is the copyright file of a Debian package, in the machine-readable form 1.0. The
// parts of a program of Go are in one file, so "Files" of a part has where its source lies.
// Parts under the same texts share a paragraph. The texts are there in full, since the package
// is also installed where no other one has them.
func copyright(own module, modules []module) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: penstock\nSource: https://%s\n", ours)
	var keys []string
	holders := map[string][]string{}
	for _, m := range modules {
		key := m.licence()
		if holders[key] == nil {
			keys = append(keys, key)
		}
		holders[key] = append(holders[key], m.path+"@"+m.version+"/*")
	}
	// Of the paragraphs that match a file the last one counts, so the program's comes first.
	paragraph(&b, []string{"*"}, []string{"The Penstock developers"}, own.licence())
	for _, key := range keys {
		paragraph(&b, holders[key], owners(key), key)
	}
	return b.Bytes()
}

// licence is what a paragraph says after "License:": the short name, and the texts.
func (m module) licence() string {
	var b strings.Builder
	b.WriteString(strings.Join(m.ids, " and "))
	for i, t := range m.texts {
		if i > 0 {
			b.WriteString("\n\n" + t.name + ":")
		}
		b.WriteString("\n" + strings.TrimSpace(strings.ReplaceAll(string(t.data), "\r", "")))
	}
	return b.String()
}

func paragraph(b *bytes.Buffer, files, owners []string, licence string) {
	fmt.Fprintf(b, "\nFiles: %s\nCopyright: %s\nLicense: %s\n", strings.Join(files, "\n "), strings.Join(owners, "\n "), folded(licence))
}

// folded is a text as the value of a field: each line but the first has a space before it,
// and an empty one a full stop.
func folded(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, " \t\f")
		switch {
		case i == 0:
		case line == "":
			line = " ."
		default:
			line = " " + line
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

var owner = regexp.MustCompile(`(?mi)^[ \t/*#]*(?:portions )?copyright(?: \(c\)| ©)?:? +((?:\(c\) +)?[0-9]{4}.*)$`)

// owners are whom the lines of a licence name as holders. The field may not be empty where
// none does, as in the bare text of the Apache licence.
func owners(licence string) []string {
	var list []string
	for _, m := range owner.FindAllStringSubmatch(licence, -1) {
		name := strings.TrimSpace(m[1])
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	if list == nil {
		return []string{"the authors of these modules"}
	}
	return list
}
