package api

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs/operation"
)

// after returns what comes behind a name in a list that is sorted by it.
func after[T any](list []T, name string, of func(T) string) []T {
	if name == "" {
		return list
	}
	at := slices.IndexFunc(list, func(v T) bool { return of(v) > name })
	if at < 0 {
		return nil
	}
	return list[at:]
}

// A mark is where an entry stands in a list that is sorted by a number and, where that
// is the same, by name.
type mark struct {
	name string
	at   int64
}

// cursor returns the mark as clients send it back.
func (m mark) cursor() string { return m.name + " " + strconv.FormatInt(m.at, 10) }

// afterMark returns what comes behind a cursor. The entry that it was made of may be
// gone, since a client may remove what it has listed: then its number says where to go
// on.
func afterMark[T any](list []T, cursor string, of func(T) mark) []T {
	if cursor == "" {
		return list
	}
	name, number, _ := strings.Cut(cursor, " ")
	if at := slices.IndexFunc(list, func(v T) bool { return of(v).name == name }); at >= 0 {
		return list[at+1:]
	}
	last, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return list // a name alone, of which nothing is there
	}
	at := slices.IndexFunc(list, func(v T) bool {
		m := of(v)
		return cmp.Or(cmp.Compare(m.at, last), cmp.Compare(m.name, name)) > 0
	})
	if at < 0 {
		return nil
	}
	return list[at:]
}

// pageSize is how many entries a page has at most where a request asks for a number.
func pageSize(limit int) int {
	if limit <= 0 || limit > operation.MaxPage {
		return operation.MaxPage
	}
	return limit
}

// page returns as much of the beginning of a list as was asked for and fits an
// answer, and whether more is left. One entry is always in it: if that is too
// large, the answer says so.
func page[T any](list []T, limit, room int) ([]T, bool, error) {
	limit = pageSize(limit)
	size := 1 << 10 // the rest of the answer
	for i, v := range list {
		body, err := json.Marshal(v)
		if err != nil {
			return nil, false, err
		}
		if size += len(body) + 1; i > 0 && (i >= limit || size > room) {
			return list[:i], true, nil
		}
	}
	if list == nil {
		list = []T{}
	}
	return list, false, nil
}
