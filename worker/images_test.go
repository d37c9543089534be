package worker

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// sees is converses with eyes: of a prompt with images it says the text, and the last
// image as it came.
const sees = hears + `text() { sed 's/.*"content":"\([^"]*\)".*/\1/; s/.*"data":"\([^"]*\)".*"text":"\([^"]*\)".*/\2 with \1/; s/.*"data":"\([^"]*\)".*/only \1/'; }
while read -r l; do case $l in
*'"type":"user"'*) turn "$l";;
esac; done`

func shown(text string, images ...string) control.Message {
	c := prompt(text)
	for _, data := range images {
		c.Images = append(c.Images, control.Image{Type: "image/gif", Data: []byte("GIF89a" + data)})
	}
	return c
}

func inBase64(data string) string { return base64.StdEncoding.EncodeToString([]byte("GIF89a" + data)) }

// accepted are the prompts that the session's log has.
func (f *field) accepted(t *testing.T, id string) (prompts []control.Input) {
	t.Helper()
	for _, d := range dataOf[control.Input](t, f.events(id), jobs.InputState) {
		if d.State == control.Accepted && d.Verb == control.Prompt {
			prompts = append(prompts, d)
		}
	}
	return prompts
}

// An image reaches the agent, is kept as an artifact that the log names, and reaches
// the agent of a later attempt, unless it is lost: then that is said.
func TestImagesReachTheAgentAndOutliveTheAttempt(t *testing.T) {
	t.Parallel()
	f := newField(t)
	job := f.speaks(sees)
	job.Agent.Interactive = true
	stop := f.work()
	id := f.submit(job).ID
	f.hears(id, "test")
	large := strings.Repeat("x", control.MaxImageBytes-len("GIF89a")-3*10)
	f.told(id, shown("look", "one", "two"))
	f.hears(id, "look with "+inBase64("two"))
	f.told(id, shown("", "three"))
	f.hears(id, "only "+inBase64("three"))
	f.told(id, shown(strings.Repeat("y", control.MaxText), "small", large))
	f.until("it hears the largest message", func() bool { return len(heard(f.events(id))) == 4 })

	got := f.accepted(t, id)
	if len(got) != 3 || len(got[0].Images) != 2 {
		t.Fatalf("accepted: %+v", got)
	}
	for _, in := range got {
		for _, i := range in.Images {
			a, err := f.eye.store.Check(t.Context(), id, i.Epoch, i.Artifact)
			if err != nil || a.SHA256 != i.SHA256 || a.Bytes != i.Bytes || i.Type != "image/gif" {
				t.Errorf("the log names %+v, the store has %+v, %v", i, a, err)
			}
		}
	}
	lost := got[1].Images[0]
	if _, err := f.eye.store.Put(t.Context(), id, lost.Epoch, lost.Artifact, bytes.NewReader([]byte("another"))); err != nil {
		t.Fatal(err)
	}
	stop() // which hands the job back at once
	defer f.work()()
	f.until("it is told all of it again", func() bool { return len(heard(f.events(id))) == 8 })
	again := heard(f.events(id))[4:]
	if again[1] != "look with "+inBase64("two") || !strings.Contains(again[2], "1 of the images of this message are left out, which are not kept any more") {
		t.Errorf("the next agent heard %.200q", again)
	}
	if !strings.HasSuffix(again[3], " with "+inBase64(large)) && !strings.Contains(again[3], "bytes cut") {
		t.Errorf("the next agent heard %.200q last", again[3])
	}
	f.told(id, control.Message{Verb: control.Stop})
	rec, events := f.ended(id)
	notices := slices.DeleteFunc(dataOf[event.Notice](t, events, jobs.Notice), func(n event.Notice) bool { return !strings.Contains(n.Text, got[1].Input) })
	if rec.Outcome != jobs.Success || len(notices) != 1 || !strings.Contains(notices[0].Text, "without 1 of its images") {
		t.Errorf("ended with %s %s (%s), notices %+v", rec.Outcome, rec.Reason, rec.Message, notices)
	}
}

// Where an image cannot be stored, and where an agent takes none, the message has no
// effect.
func TestImagesThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newField(t)
	var err error
	f.cfg.Store, err = artifact.Open(t.Context(), jobstest.Connect(t, f.server.URL()), artifact.Config{MaxBytes: 100})
	f.must(err)
	job := f.speaks(sees)
	job.Agent.Interactive = true
	defer f.work()()
	id := f.submit(job).ID
	f.hears(id, "test")
	if why := f.refused(id, shown("look", strings.Repeat("x", 100)), control.Lost); !strings.Contains(why, "image-") || !strings.Contains(why, "100 bytes") {
		t.Errorf("refused: %s", why)
	}
	f.told(id, prompt("more"))
	f.hears(id, "test", "more")
	f.told(id, control.Message{Verb: control.Stop})
	if rec, _ := f.ended(id); rec.Outcome != jobs.Success || len(f.accepted(t, id)) != 1 {
		t.Errorf("ended with %s %s (%s), accepted %+v", rec.Outcome, rec.Reason, rec.Message, f.accepted(t, id))
	}

	id = f.submit(f.job("echo here; sleep 1000")).ID
	f.runs(id)
	f.refused(id, shown("look", "small"), control.Cannot)
	if epochs, err := f.eye.store.Epochs(t.Context(), id); err != nil || len(epochs) > 0 {
		t.Errorf("artifacts were kept of the epochs %v, %v", epochs, err)
	}
	f.told(id, control.Message{Verb: control.Stop})
	f.ended(id)
}
