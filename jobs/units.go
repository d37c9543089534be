package jobs

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-run/penstock/sandbox/bytesize"
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

// ParseBytes reads a size such as "512MiB", "10GB" or "4096".
func ParseBytes(s string) (Bytes, error) {
	n, err := bytesize.Parse(s)
	return Bytes(n), err
}

// String writes the size with the largest unit that divides it.
func (b Bytes) String() string { return bytesize.Format(int64(b)) }

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
