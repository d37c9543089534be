package git

import (
	"bytes"
	"slices"
	"testing"
)

func TestProgressIsReportedAndRemoved(t *testing.T) {
	const said = "remote: Counting objects:  50% (8/16)        \rremote: Counting objects: 100% (16/16), done.        \n" +
		"Receiving objects:   7% (1/14), 1.20 MiB | 3.00 MiB/s\rfatal: no\nremote: Not objects: 200% (2/1)\rUpdating files: 100% (3/3), done.\nwarning: an end without"
	want := []progress{{"Counting objects", 50, 8, 16}, {"Counting objects", 100, 16, 16}, {"Receiving objects", 7, 1, 14}, {"Updating files", 100, 3, 3}}
	for _, size := range []int{1, 7, len(said)} {
		var got []progress
		var rest bytes.Buffer
		f := &progressFilter{tell: func(phase string, percent int, done, total int64) {
			got = append(got, progress{phase, percent, done, total})
		}, rest: &rest}
		for part := range slices.Chunk([]byte(said), size) {
			if n, err := f.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		f.flush()
		if !slices.Equal(got, want) || rest.String() != "fatal: no\nremote: Not objects: 200% (2/1)\rwarning: an end without" {
			t.Errorf("in parts of %d: got %v and %q", size, got, rest.String())
		}
	}
}
