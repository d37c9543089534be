// Package redact removes the values of secrets from what leaves a worker.
//
//	New(name → value) ──▶ Redactor ──Event──▶ the same event without them
//	                          └─────Writer──▶ the same stream without them
//
// A value is found as it is, and in the encodings in which programs often print it:
// base64 and base64url at any alignment, hexadecimal, percent-encoded, escaped for
// JSON. Each line of a value with several lines is found by itself, because events are
// made of lines. In JSON every string is compared as its reader will see it, so no way
// of escaping hides a value, and JSON stays JSON.
//
// This is a net for accidents. A program can deliberately evade it, by splitting a
// secret or by an encoding of its own. A secret that must not get out must not get into
// the jail.
package redact

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// MinLength is the shortest value that is searched for. Shorter ones would be found
// everywhere.
const MinLength = 8

// minLine is the shortest line of a value with several lines that is searched for by
// itself.
const minLine = 16

// A Skipped names a secret that is not searched for, and why.
type Skipped struct{ Name, Reason string }

// A Redactor searches for the values of some secrets. It may be used from any
// goroutine.
type Redactor struct {
	// pairs has a bit for the first two bytes of each pattern: it rules out nearly
	// every position of a text.
	pairs    [1 << 16 / 64]uint64
	patterns map[[2]byte][]pattern // the longest first
	longest  int
}

type pattern struct {
	text []byte
	mark []byte // the replacement
}

// New returns a Redactor for secrets, by name. It also returns those that it cannot
// search for.
func New(secrets map[string]string) (*Redactor, []Skipped) {
	r := &Redactor{patterns: map[[2]byte][]pattern{}}
	var skipped []Skipped
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		value := secrets[name]
		if len(strings.TrimSpace(value)) < MinLength {
			skipped = append(skipped, Skipped{name, fmt.Sprintf("is shorter than %d bytes, and would be found everywhere", MinLength)})
			continue
		}
		mark := []byte("[redacted " + plainName(name) + "]")
		for form := range forms(value) {
			r.add(pattern{[]byte(form), mark})
		}
	}
	for _, list := range r.patterns {
		slices.SortFunc(list, func(a, b pattern) int {
			return cmp.Or(cmp.Compare(len(b.text), len(a.text)), bytes.Compare(a.text, b.text), bytes.Compare(a.mark, b.mark))
		})
	}
	return r, skipped
}

// plainName is a name that needs no escape anywhere.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
}

func (r *Redactor) add(p pattern) {
	pair := [2]byte(p.text)
	i := uint(pair[0])<<8 | uint(pair[1])
	r.pairs[i/64] |= 1 << (i % 64)
	r.patterns[pair] = append(r.patterns[pair], p)
	r.longest = max(r.longest, len(p.text))
}

// forms are the encodings in which a value is searched for.
func forms(value string) map[string]bool {
	values := []string{value, strings.TrimSpace(value)}
	if strings.Contains(value, "\n") {
		for line := range strings.Lines(value) {
			// The first and last line of a key file are the same for every key.
			if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
				values = append(values, line)
			}
		}
	}
	found := map[string]bool{}
	for _, v := range values {
		found[v] = true
		found[hex.EncodeToString([]byte(v))] = true
		found[strings.ToUpper(hex.EncodeToString([]byte(v)))] = true
		for _, escaped := range []string{url.QueryEscape(v), url.PathEscape(v)} {
			found[escaped] = true
			found[lowerEscapes(escaped)] = true
		}
		for _, html := range []bool{true, false} {
			quoted := quote(v, html)
			found[quoted] = true
			found[strings.ReplaceAll(quoted, "/", `\/`)] = true
		}
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			for shift := range 3 {
				found[aligned(enc, v, shift)] = true
			}
		}
	}
	return found
}

// aligned is the constant part of the base64 encodings of all texts that have v after
// shift bytes, or three more or six more. It omits the digits at its ends that depend
// on the neighbouring bytes.
func aligned(enc *base64.Encoding, v string, shift int) string {
	digits := enc.EncodeToString(append(make([]byte, shift), v...))
	first := (shift*8 + 5) / 6
	last := (shift + len(v)) * 8 / 6
	return digits[first:last]
}

// lowerEscapes writes %2F as %2f.
func lowerEscapes(s string) string {
	out := []byte(s)
	for i := 0; i+2 < len(out); i++ {
		if out[i] == '%' {
			copy(out[i+1:], bytes.ToLower(out[i+1:i+3]))
		}
	}
	return string(out)
}

// quote is s as it stands in a JSON string, without the quotes around it.
func quote(s string, html bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string can always be written
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// match returns the pattern that stands at the beginning of p, if any.
func (r *Redactor) match(p []byte) (pattern, bool) {
	if len(p) < 2 {
		return pattern{}, false
	}
	for _, c := range r.patterns[[2]byte(p)] {
		if bytes.HasPrefix(p, c.text) {
			return c, true
		}
	}
	return pattern{}, false
}

// find returns the first pattern that begins in p between from and to, and its
// position; if there is none, the position is to.
func (r *Redactor) find(p []byte, from, to int) (int, pattern, bool) {
	for i := from; i < to && i+1 < len(p); i++ {
		if pair := uint(p[i])<<8 | uint(p[i+1]); r.pairs[pair/64]&(1<<(pair%64)) == 0 {
			continue
		}
		if c, ok := r.match(p[i:]); ok {
			return i, c, true
		}
	}
	return to, pattern{}, false
}

// Text returns p without the secrets. It returns p itself if it contains none.
func (r *Redactor) Text(p []byte) []byte {
	var out []byte
	done := 0 // up to where p is in out
	for i, c, ok := r.find(p, 0, len(p)); ok; i, c, ok = r.find(p, done, len(p)) {
		out = append(append(out, p[done:i]...), c.mark...)
		done = i + len(c.text)
	}
	if done == 0 {
		return p
	}
	return append(out, p[done:]...)
}
