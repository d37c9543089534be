package queue_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// Specifications are many and read once, so the broker packs them. They are whole after it
// has started again.
func TestSpecificationsTakeLessThanTheyHave(t *testing.T) {
	t.Parallel()
	s := jobstest.StartSynced(t)
	q := open(t, s, queue.Config{})
	prompts, sum := map[string]string{}, 0
	for n := range 30 {
		job := jobstest.Job()
		job.Prompt = strings.Repeat(fmt.Sprintf("Look at issue %d again. ", n), 15_000)
		prompts[jobstest.Submit(t, q, job).ID], sum = job.Prompt, sum+len(job.Prompt)
	}
	dir := filepath.Join(s.Dir(), "jetstream", "$G", "streams", "KV_ps_specs")
	for end := time.Now().Add(10 * time.Second); size(t, dir) > sum/2; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes of prompts take %d on the disk", sum, size(t, dir))
		}
	}
	s.Restart()
	for id, want := range prompts {
		if job, err := q.Spec(jobstest.Context(t), id); err != nil || job.Prompt != want {
			t.Fatalf("%s: a prompt of %d bytes instead of %d: %v", id, len(job.Prompt), len(want), err)
		}
	}
}

// size is how many bytes the files below a directory have.
func size(t *testing.T, dir string) (sum int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += int(info.Size())
		}
		return nil // it has been replaced meanwhile
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
