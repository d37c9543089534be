package recording

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/worker/internal/redact"
)

var (
	uuids = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	})
	times = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\b20\d\d-[01]\d-[0-3]\d[T ][0-2]\d([:-])[0-5]\d[:-][0-5]\d(?:\.\d+|-\d{3})?(Z|[+-]\d\d:?\d\d)?`)
	})
	days      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b20\d\d([-/])[01]\d[-/][0-3]\d\b`) })
	millis    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b(|[A-Za-z_]+_)1[6-9]\d{11}(?:\d{3}|\d{6})?(_|\b)`) })
	seconds   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(At|_at|[Tt]ime|stamp)(\\?":)1[6-9]\d{8}\b`) })
	durations = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(\\?"\w*(?:_ms|Ms|[dD]uration|[eE]lapsed|[lL]atency|_seconds|_secs)\w*\\?":)\d+(\.\d+)?`)
	})
	processes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(\\?"(?:pid|processId|process_id)\\?":\\?"?)\d+`) })
	scratch   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(/tmp/[\w.-]*?)[-.][A-Za-z0-9]{6,12}\b`) })
)

// A normalizer replaces what differs from run to run, and what must not be kept.
type normalizer struct {
	secrets *redact.Redactor
	known   map[string]string // ids, and what stands for each
	paths   *strings.Replacer // directories of the host
}

// newNormalizer returns one that leaves the ids in these texts as they are.
func newNormalizer(secrets map[string]string, program []string, own ...string) *normalizer {
	secret, _ := redact.New(secrets) // those that are too short to search for are no secrets of ours
	n := &normalizer{secrets: secret, known: map[string]string{}}
	for _, text := range own {
		for _, id := range uuids().FindAllString(text, -1) {
			n.known[id] = id
		}
	}
	var pairs []string
	for _, word := range program {
		if path.IsAbs(word) {
			pairs = append(pairs, word, path.Base(word), path.Dir(word), "/program")
		}
	}
	n.paths = strings.NewReplacer(pairs...)
	return n
}

// line is a line of a transcript without what differs.
func (n *normalizer) line(way string, line []byte) []byte {
	if line = n.secrets.Text(line); way != "say" && len(line) > 0 && line[0] == '{' {
		line = n.secrets.JSON(line)
	}
	return []byte(n.text(string(line)))
}

func (n *normalizer) text(s string) string {
	s = n.paths.Replace(s)
	s = uuids().ReplaceAllStringFunc(s, n.id)
	s = times().ReplaceAllString(s, "2026-01-01T00${1}00${1}00${2}")
	s = days().ReplaceAllString(s, "2026${1}01${1}01")
	s = millis().ReplaceAllString(s, "${1}1767225600000${2}")
	s = seconds().ReplaceAllString(s, "${1}${2}1767225600")
	s = durations().ReplaceAllString(s, "${1}1")
	s = processes().ReplaceAllString(s, "${1}1")
	return scratch().ReplaceAllString(s, "${1}-XXXXXX")
}

// id numbers the ids in the order in which they come.
func (n *normalizer) id(id string) string {
	if n.known[id] == "" {
		n.known[id] = fmt.Sprintf("00000000-0000-4000-8000-%012d", len(n.known)+1)
	}
	return n.known[id]
}

// words are the words of a program without directories of the host.
func words(program []string) []string {
	short := slices.Clone(program)
	for i, word := range short {
		if path.IsAbs(word) {
			short[i] = path.Base(word)
		}
	}
	return short
}
