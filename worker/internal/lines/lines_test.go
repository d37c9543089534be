package lines_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/lines"
)

// split returns what becomes of the lines of a stream that is written in pieces of a size.
func split(in string, size, limit int) (got []string) {
	l := lines.New(agent.Stdout, limit, func(l agent.Line) {
		s := fmt.Sprintf("%d %s", l.N, l.Bytes)
		if l.Cut > 0 {
			s += fmt.Sprintf(" +%d", l.Cut)
		}
		got = append(got, s)
	})
	for piece := range slices.Chunk([]byte(in), size) {
		_, _ = l.Write(piece)
		clear(piece) // a line that is kept must be a copy
	}
	l.End()
	return got
}

func TestSplitter(t *testing.T) {
	tests := []struct {
		in    string
		limit int
		want  []string
	}{
		{"", 8, nil},
		{"a\nb", 8, []string{"1 a", "2 b"}},
		{"a\n\n\n", 8, []string{"1 a", "2 ", "3 "}},
		{"a\r\n", 8, []string{"1 a\r"}},
		{"12345678\n", 8, []string{"1 12345678"}},
		{"123456789\nx\n", 8, []string{"1 12345678 +1", "2 x"}},
		{strings.Repeat("x", 200_000) + "\ny", 3, []string{"1 xxx +199997", "2 y"}},
		{strings.Repeat("x", 200_000), 3, []string{"1 xxx +199997"}},
		{"nul \x00 \xff\n", 8, []string{"1 nul \x00 \xff"}},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 2, 7, 1 << 20} {
			if got := split(tt.in, size, tt.limit); !slices.Equal(got, tt.want) {
				t.Errorf("%.40q in pieces of %d: got %.200q, want %q", tt.in, size, got, tt.want)
			}
		}
	}
}

// A stream that has ended says nothing more, whoever still writes to it.
func TestAfterTheEnd(t *testing.T) {
	var got []string
	l := lines.New(agent.Stdout, 8, func(l agent.Line) { got = append(got, string(l.Bytes)) })
	_, err := l.Write([]byte("a\nhalf"))
	l.End()
	l.End()
	_, later := l.Write([]byte("b\n"))
	if err != nil || !errors.Is(later, io.ErrClosedPipe) || strings.Join(got, "|") != "a|half" {
		t.Errorf("got %q, err %v, and after the end %v", got, err, later)
	}
}

// A line of 100 MB must not be held in memory.
func TestBounded(t *testing.T) {
	var before, after runtime.MemStats
	piece := bytes.Repeat([]byte("x"), 64<<10)
	runtime.GC()
	runtime.ReadMemStats(&before)
	cut := 0
	l := lines.New(agent.Stdout, 1<<20, func(l agent.Line) { cut = l.Cut })
	for range 100 << 20 / len(piece) {
		_, _ = l.Write(piece)
	}
	l.End()
	runtime.ReadMemStats(&after)
	if cut != 99<<20 {
		t.Errorf("%d bytes missing, want %d", cut, 99<<20)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("allocated %d bytes for a limit of %d", used, 1<<20)
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a\nb\r\n\x00\n"), 3, 2)
	f.Fuzz(func(t *testing.T, in []byte, limit, size int) {
		limit = limit&0xff + 1
		var back []byte
		total := 0
		l := lines.New(agent.Stdout, limit, func(l agent.Line) {
			if len(l.Bytes) > limit || l.Cut > 0 && len(l.Bytes) != limit {
				t.Fatalf("%d bytes kept and %d cut with limit %d", len(l.Bytes), l.Cut, limit)
			}
			back = append(append(back, l.Bytes...), '\n')
			total += len(l.Bytes) + l.Cut + 1
		})
		for piece := range slices.Chunk(in, size&0xff+1) {
			if n, err := l.Write(piece); n != len(piece) || err != nil {
				t.Fatalf("wrote %d of %d: %v", n, len(piece), err)
			}
		}
		l.End()
		whole := in
		if len(in) > 0 && in[len(in)-1] != '\n' {
			whole = append(bytes.Clone(in), '\n')
		}
		if total != len(whole) {
			t.Errorf("%d bytes accounted for, want %d", total, len(whole))
		}
		if total == len(back) && !bytes.Equal(back, whole) {
			t.Errorf("lines %q make %q", in, back)
		}
	})
}
