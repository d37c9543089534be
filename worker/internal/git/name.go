package git

import (
	"strings"
	"unicode/utf8"
)

// IsGitDir reports whether name is ".git" on some file system: in another case, with
// characters that are ignored there, with trailing dots and spaces, with a stream, as a
// short name. git refuses such names in a tree, because a user who checks them out
// there gets a repository that the agent wrote.
func IsGitDir(name string) bool {
	plain := strings.ToLower(dropIgnored(name))
	if plain == ".git" {
		return true
	}
	// A backslash separates names on Windows, so each part counts.
	for part := range strings.SplitSeq(name, `\`) {
		part, _, _ = strings.Cut(part, ":")
		part = strings.ToLower(strings.TrimRight(part, ". "))
		if part == ".git" || part == "git~1" {
			return true
		}
	}
	return false
}

// ignored are the code points that HFS+ leaves out when it compares names.
const ignored = "\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u206a\u206b\u206c\u206d\u206e\u206f\ufeff"

func dropIgnored(name string) string {
	if !utf8.ValidString(name) {
		return name
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(ignored, r) {
			return -1
		}
		return r
	}, name)
}
