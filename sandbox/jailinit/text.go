package jailinit

import "bytes"

// What package strings has. In the order in which Go initialises packages it
// stands behind package reflect, for which most of a large program waits;
// package bytes, which can do the same, stands before.

func contains(s, sub string) bool { return bytes.Contains([]byte(s), []byte(sub)) }

func hasPrefix(s, prefix string) bool { return len(s) >= len(prefix) && s[:len(prefix)] == prefix }

func cutPrefix(s, prefix string) (rest string, found bool) {
	if !hasPrefix(s, prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

func cut(s, separator string) (before, after string, found bool) {
	if i := bytes.Index([]byte(s), []byte(separator)); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

func split(s, separator string) []string {
	return texts(bytes.Split([]byte(s), []byte(separator)))
}

func fields(s string) []string { return texts(bytes.Fields([]byte(s))) }

func lines(b []byte) []string { return texts(bytes.Split(b, []byte("\n"))) }

func texts(parts [][]byte) []string {
	all := make([]string, len(parts))
	for i, p := range parts {
		all[i] = string(p)
	}
	return all
}

func trimSpace(s string) string { return string(bytes.TrimSpace([]byte(s))) }

func join(parts []string, separator string) string {
	var b []byte
	for i, p := range parts {
		if i > 0 {
			b = append(b, separator...)
		}
		b = append(b, p...)
	}
	return string(b)
}
