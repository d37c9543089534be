package jobs

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that is written "1h30m" in JSON.
type Duration time.Duration

// MarshalText writes the duration as Go does: "30m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write a number and a unit, as in 90s, 30m or 2h", text)
	}
	*d = Duration(v)
	return nil
}

// Bytes is a size. In JSON it is a number of bytes, or a string with a unit:
// "512MiB", "10GB".
type Bytes int64

// Ordered so that no unit stands before one that it ends with.
var byteUnits = []struct {
	name string
	size float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseBytes reads a size such as "512MiB", "10GB" or "4096".
func ParseBytes(s string) (Bytes, error) {
	number, unit := strings.TrimSpace(s), 1.0
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	size := v * unit
	if err != nil || math.IsNaN(size) || size < 0 || size >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size: write a number and a unit, as in 512MiB or 10GB", s)
	}
	return Bytes(size), nil
}

// String writes the size with the largest binary unit that divides it.
func (b Bytes) String() string {
	for i := 3; i >= 0; i-- {
		if u := Bytes(byteUnits[i].size); b >= u && b%u == 0 {
			return strconv.FormatInt(int64(b/u), 10) + byteUnits[i].name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// MarshalJSON writes the size as String does.
func (b Bytes) MarshalJSON() ([]byte, error) { return json.Marshal(b.String()) }

// UnmarshalJSON reads a number of bytes or a string with a unit.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	text := string(data)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	v, err := ParseBytes(text)
	if err != nil {
		return err
	}
	*b = v
	return nil
}
