// Package input reads the input of users at the command line: files and standard input,
// of a bounded size, and flags that take only certain values. An error names the input,
// and what is allowed.
package input

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// MaxFile bounds a file of settings, keys or words: real ones are smaller, and a larger
// one was named by mistake.
const MaxFile jobs.Bytes = 1 << 20

// ReadFile reads a file that a user names, up to a maximum size.
func ReadFile(name string, most jobs.Bytes) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, name, most)
}

// ReadAll reads a user's input, up to a maximum size.
func ReadAll(r io.Reader, name string, most jobs.Bytes) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if jobs.Bytes(len(data)) > most {
		return nil, fmt.Errorf("%s is larger than %s, which is the limit", name, most)
	}
	return data, nil
}

// A Size is a flag that takes a number of bytes, with or without a unit.
type Size jobs.Bytes

// String, Set and Type make Size a flag.
func (s *Size) String() string {
	if *s == 0 {
		return ""
	}
	return jobs.Bytes(*s).String()
}

// Type names the flag's value in help texts.
func (s *Size) Type() string { return "size" }

// Set reads a size such as 512MiB.
func (s *Size) Set(text string) error {
	n, err := jobs.ParseBytes(text)
	*s = Size(n)
	return err
}

// A Span is a flag that takes a time span of more than no time: seconds to days.
type Span time.Duration

// String, Set and Type make Span a flag.
func (s *Span) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

// Type names the flag's value in help texts.
func (s *Span) Type() string { return "duration" }

// Set reads a time span such as 12h or 30d.
func (s *Span) Set(text string) error {
	d, err := ParseSpan(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is no time: write a number above 0 and a unit, as in 12h or 30d", text)
	}
	*s = Span(d)
	return err
}
