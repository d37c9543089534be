package intake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// FuzzRead feeds every reader. Whatever comes in, each item is either an
// error or a job that the pool would accept, under a name that is safe.
func FuzzRead(f *testing.F) {
	for _, pattern := range []string{"testdata/*.json*", "testdata/*.yaml", "testdata/*.csv"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds for %s: %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(data), 0)
		}
	}
	for i := range formats {
		f.Add("[{\"prompt\":\"p\",\"number\":1}]", i)
	}
	f.Fuzz(func(t *testing.T, text string, format int) {
		opts := Options{Format: formats[max(format, -format, 0)%len(formats)], Defaults: defaults()}
		items, err := Read(strings.NewReader(text), "in", opts)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, item := range items.Items {
			if seen[strings.ToLower(item.ID)] || FileSafe(item.ID) != item.ID {
				t.Fatalf("id %q is there twice or is unsafe", item.ID)
			}
			seen[strings.ToLower(item.ID)] = true
			if item.Err != nil {
				continue
			}
			if err := item.Job.Validate(); err != nil {
				t.Fatalf("item %s: %v", item.ID, err)
			}
			if _, err := jobs.Decode(encode(item.Job)); err != nil {
				t.Fatalf("item %s does not survive the wire: %v", item.ID, err)
			}
		}
	})
}
