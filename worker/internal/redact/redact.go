// Package redact removes the values of secrets from what leaves a worker.
//
//	New(name → value) ──▶ Redactor ──Event──▶ the same event without them
//	                          └─────Writer──▶ the same stream without them
//	Common.Learn(name, value) ──▶ every Redactor of it, also those that are in use
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
	"sync"
	"sync/atomic"
)

// MinLength is the shortest value that is searched for. Shorter ones would be found
// everywhere.
const MinLength = 8

// minLine is the shortest line of a value with several lines that is searched for by
// itself.
const minLine = 16

// A Skipped names a secret that is not searched for, and why.
type Skipped struct{ Name, Reason string }

// A named is a value that is searched for, and its name.
type named struct{ name, value string }

// A Common is secrets that several Redactors search for. It only gets more of them: what a secret was
// may still be in what is written after it. The zero value has none. Its methods may be called from any
// goroutine.
type Common struct {
	mu  sync.Mutex // makes one change after the other
	all atomic.Pointer[[]named]
}

// Learn adds a secret; one of the same name stays. When it returns, no Redactor passes it on.
func (c *Common) Learn(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []named
	if now := c.all.Load(); now != nil {
		all = *now
	}
	if s := (named{name, value}); !slices.Contains(all, s) {
		all = append(slices.Clone(all), s)
		c.all.Store(&all)
	}
}

// Redactor returns one for secrets, by name, and for the common ones. It also returns those that it
// cannot search for.
func (c *Common) Redactor(secrets map[string]string) (*Redactor, []Skipped) {
	r := &Redactor{common: c}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		r.own = append(r.own, named{name, secrets[name]})
	}
	t, skipped := r.compile()
	r.table.Store(t)
	return r, skipped
}

// New returns a Redactor for secrets, by name. It also returns those that it cannot
// search for.
func New(secrets map[string]string) (*Redactor, []Skipped) { return new(Common).Redactor(secrets) }

// A Redactor searches for the values of some secrets. It may be used from any
// goroutine.
type Redactor struct {
	own    []named
	common *Common
	table  atomic.Pointer[table]
}

// A table is what is searched for. It does not change.
type table struct {
	common *[]named // of which it was made
	// pairs has a bit for the first two bytes of each pattern: it rules out nearly
	// every position of a text. It is small, since each session has a table.
	pairs    [pairBits / 64]uint64
	patterns map[[2]byte][]pattern // the longest first
	longest  int
}

type pattern struct {
	text []byte
	mark []byte // the replacement
}

// now returns the table with all secrets that are known.
func (r *Redactor) now() *table {
	t := r.table.Load()
	if t.common != r.common.all.Load() {
		t, _ = r.compile()
		r.table.Store(t) // another goroutine may store an older one: the next call sees that
	}
	return t
}

// compile makes the table. It also returns the secrets that cannot be searched for.
func (r *Redactor) compile() (*table, []Skipped) {
	t := &table{common: r.common.all.Load(), patterns: map[[2]byte][]pattern{}}
	all := r.own
	if t.common != nil {
		all = slices.Concat(all, *t.common)
	}
	var skipped []Skipped
	for _, s := range all {
		if len(strings.TrimSpace(s.value)) < MinLength {
			skipped = append(skipped, Skipped{s.name, fmt.Sprintf("is shorter than %d bytes, and would be found everywhere", MinLength)})
			continue
		}
		mark := []byte("[redacted " + plainName(s.name) + "]")
		for form := range forms(s.value) {
			t.add(pattern{[]byte(form), mark})
		}
	}
	for _, list := range t.patterns {
		slices.SortFunc(list, func(a, b pattern) int {
			return cmp.Or(cmp.Compare(len(b.text), len(a.text)), bytes.Compare(a.text, b.text), bytes.Compare(a.mark, b.mark))
		})
	}
	return t, skipped
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

const pairBits = 1 << 13

// pairBit is which bit stands for two bytes, and for seven other pairs.
func pairBit(first, second byte) uint { return (uint(first)<<5 ^ uint(second)) % pairBits }

func (t *table) add(p pattern) {
	pair := [2]byte(p.text)
	i := pairBit(pair[0], pair[1])
	t.pairs[i/64] |= 1 << (i % 64)
	t.patterns[pair] = append(t.patterns[pair], p)
	t.longest = max(t.longest, len(p.text))
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
func (t *table) match(p []byte) (pattern, bool) {
	if len(p) < 2 {
		return pattern{}, false
	}
	for _, c := range t.patterns[[2]byte(p)] {
		if bytes.HasPrefix(p, c.text) {
			return c, true
		}
	}
	return pattern{}, false
}

// find returns the first pattern that begins in p between from and to, and its
// position; if there is none, the position is to.
func (t *table) find(p []byte, from, to int) (int, pattern, bool) {
	for i := from; i < to && i+1 < len(p); i++ {
		if pair := pairBit(p[i], p[i+1]); t.pairs[pair/64]&(1<<(pair%64)) == 0 {
			continue
		}
		if c, ok := t.match(p[i:]); ok {
			return i, c, true
		}
	}
	return to, pattern{}, false
}

// Text returns p without the secrets. It returns p itself if it contains none.
func (r *Redactor) Text(p []byte) []byte {
	var out []byte
	t := r.now()
	done := 0 // up to where p is in out
	for i, c, ok := t.find(p, 0, len(p)); ok; i, c, ok = t.find(p, done, len(p)) {
		out = append(append(out, p[done:i]...), c.mark...)
		done = i + len(c.text)
	}
	if done == 0 {
		return p
	}
	return append(out, p[done:]...)
}

// Mask returns p with other bytes in the place of the secrets, and of the same length: digits
// for one that consists of digits. It returns p itself if it contains none.
func (r *Redactor) Mask(p []byte) []byte {
	var out []byte
	t := r.now()
	done := 0
	for i, c, ok := t.find(p, 0, len(p)); ok; i, c, ok = t.find(p, done, len(p)) {
		if out == nil {
			out = bytes.Clone(p)
		}
		done = i + len(c.text)
		with := byte('*')
		if strings.Trim(string(c.text), "0123456789") == "" {
			with = '1' // it may be a number of JSON
		}
		for at := i; at < done; at++ {
			out[at] = with
		}
	}
	if out == nil {
		return p
	}
	return out
}
