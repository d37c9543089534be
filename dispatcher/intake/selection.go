package intake

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// selection picks items of a batch: shuffle, filter, slice, limit, in this
// order.
type selection struct {
	shuffle bool
	seed    int64
	filter  *regexp.Regexp
	slice   *[3]*int
	limit   int
}

func newSelection(opts Options) (selection, error) {
	s := selection{shuffle: opts.Shuffle, seed: cmp.Or(opts.Seed, 42), limit: opts.Limit}
	if opts.Limit < 0 {
		return s, inputError(0, "limit %d is below 0", opts.Limit)
	}
	if opts.Filter != "" {
		re, err := regexp.Compile("^(?:" + opts.Filter + ")")
		if err != nil {
			return s, inputError(0, "filter %q is not a regular expression: %v", opts.Filter, err)
		}
		s.filter = re
	}
	if opts.Slice != "" {
		slice, err := parseSlice(opts.Slice)
		if err != nil {
			return s, err
		}
		s.slice = slice
	}
	return s, nil
}

func parseSlice(text string) (*[3]*int, error) {
	parts := strings.Split(text, ":")
	if len(parts) == 1 {
		parts = []string{"", parts[0]} // a single number is the end, as in Python's slice(n)
	}
	if len(parts) > 3 {
		return nil, inputError(0, "slice %q has more than three parts: write begin:end or begin:end:step", text)
	}
	var slice [3]*int
	for i, part := range parts {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, inputError(0, "slice %q: %q is not a whole number", text, part)
		}
		slice[i] = &n
	}
	if slice[2] != nil && *slice[2] == 0 {
		return nil, inputError(0, "slice %q: the step is 0", text)
	}
	return &slice, nil
}

func (s selection) apply(entries []*entry) []*entry {
	chosen := slices.Clone(entries)
	if s.shuffle {
		// Sorted first: the same items come in the same order, whatever the
		// order of the file.
		slices.SortFunc(chosen, func(a, b *entry) int { return strings.Compare(a.id, b.id) })
		rand.New(rand.NewPCG(uint64(s.seed), 0)).Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	}
	if s.filter != nil {
		chosen = slices.DeleteFunc(chosen, func(e *entry) bool { return !s.filter.MatchString(e.id) })
	}
	if s.slice != nil {
		chosen = cut(chosen, s.slice)
	}
	if s.limit > 0 && len(chosen) > s.limit {
		chosen = chosen[:s.limit]
	}
	return chosen
}

// cut is list[begin:end:step] of Python.
func cut[T any](list []T, slice *[3]*int) []T {
	n, step := len(list), 1
	if slice[2] != nil {
		step = *slice[2]
	}
	low, high := 0, n
	begin, end := 0, n
	if step < 0 {
		low, high = -1, n-1
		begin, end = n-1, -1
	}
	clamp := func(at *int, otherwise int) int {
		if at == nil {
			return otherwise
		}
		v := *at
		if v < 0 {
			v = max(v, -n-1) + n
		}
		return min(max(v, low), high)
	}
	begin, end = clamp(slice[0], begin), clamp(slice[1], end)
	// A step beyond the list's length takes one element; keeping it near
	// avoids an overflow of the index.
	step = min(max(step, -n-1), n+1)
	var out []T
	for i := begin; (step > 0 && i < end) || (step < 0 && i > end); i += step {
		out = append(out, list[i])
	}
	return out
}

var unsafeRunes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9._-]+`) })

// assignIDs gives every entry an id that can be a file's name, and refuses a
// batch in which two have the same.
func assignIDs(name string, entries []*entry) error {
	type first struct {
		line int
		id   string
	}
	seen := map[string]first{}
	var twice []string
	for i, e := range entries {
		original := strings.TrimSpace(e.id)
		if original == "" {
			original = fmt.Sprintf("item-%d", i+1)
		}
		e.id = FileSafe(original)
		// Some file systems do not distinguish A from a.
		folded := strings.ToLower(e.id)
		if old, ok := seen[folded]; ok {
			if len(twice) < 10 {
				twice = append(twice, collision(old.id, old.line, original, e.line))
			}
			continue
		}
		seen[folded] = first{e.line, original}
	}
	if len(twice) > 0 {
		return &InputError{Name: name, Reason: strings.Join(twice, "; ")}
	}
	return nil
}

func collision(a string, lineA int, b string, lineB int) string {
	if a == b {
		return fmt.Sprintf("the id %q is on line %d and again on line %d", a, lineA, lineB)
	}
	return fmt.Sprintf("the ids %q on line %d and %q on line %d would be one file", a, lineA, b, lineB)
}

// FileSafe turns an id into a name that jobs accept and file systems keep.
func FileSafe(id string) string {
	const most = 128
	safe := strings.TrimLeft(unsafeRunes().ReplaceAllString(id, "-"), "._-")
	if safe == "" || len(safe) > most {
		sum := sha256.Sum256([]byte(id))
		safe = safe[:min(len(safe), most-17)] + "-" + hex.EncodeToString(sum[:8])
		safe = strings.TrimLeft(safe, "-")
	}
	return safe
}
