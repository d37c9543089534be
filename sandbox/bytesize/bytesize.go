// Package bytesize reads and writes numbers of bytes as people do: 512MiB, 10GB, 4096.
// Jobs, policies and flags share it, so that each of them takes what the others print.
package bytesize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units are ordered from the largest to the smallest, so that none stands before one
// that its name ends with.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6},
	{"KiB", 1 << 10}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

// Parse reads a size such as "512MiB", "10GB", "1.5GiB" or "4096".
func Parse(text string) (int64, error) {
	number, unit := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil && n >= 0 && n <= math.MaxInt64/unit {
		return n * unit, nil // exact, which a float is not
	}
	v, err := strconv.ParseFloat(number, 64)
	size := v * float64(unit)
	if err != nil || math.IsNaN(size) || size < 0 || size >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size: write a number and a unit, as in 512MiB or 10GB", text)
	}
	return int64(size), nil
}

// Format writes a size exactly, with the largest unit that divides it.
func Format(bytes int64) string {
	for _, u := range units {
		if bytes >= u.bytes && bytes%u.bytes == 0 {
			return strconv.FormatInt(bytes/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(bytes, 10) + "B"
}
