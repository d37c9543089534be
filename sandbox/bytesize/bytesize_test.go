package bytesize

import (
	"math"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "1B": 1, "10GB": 1e10, "10 GB": 1e10, " 512MiB ": 512 << 20, "1.5GiB": 3 << 29, "2kB": 2000, "2KB": 2000, "2KiB": 2048,
		"3TiB": 3 << 40, "3TB": 3e12, "9007199254740993": 1<<53 + 1, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "GB", "-1", "-1GB", "1XB", "inf", "NaN", "9223372036854775808", "9000000TiB", "1 2"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

// What is printed is read as the same number.
func TestFormat(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0B", 1: "1B", 1000: "1kB", 1024: "1KiB", 1e10: "10GB", 10 << 30: "10GiB", 25e8: "2500MB", 1023: "1023B", 1024000: "1000KiB", -1: "-1B", math.MaxInt64: "9223372036854775807B",
	} {
		if got := Format(bytes); got != want {
			t.Errorf("%d: got %s, want %s", bytes, got, want)
		}
		if got, err := Parse(want); bytes >= 0 && (err != nil || got != bytes) {
			t.Errorf("%s: got %d, %v", want, got, err)
		}
	}
}

func FuzzFormat(f *testing.F) {
	f.Add(int64(1e10))
	f.Fuzz(func(t *testing.T, bytes int64) {
		if got, err := Parse(Format(bytes)); bytes >= 0 && (err != nil || got != bytes) {
			t.Errorf("%d is printed as %s and read as %d, %v", bytes, Format(bytes), got, err)
		}
	})
}
