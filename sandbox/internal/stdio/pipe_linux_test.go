package stdio

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// What a program writes that does not wait for us is there when we read, up to the size of the pipe.
func TestAPipeHoldsALongLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p, err := Plumb(Streams{Stdout: &out}, 0)
	if err != nil {
		t.Fatal(err)
	}
	<-program(t, p, func(_, out, _ *os.File) {
		if err := out.SetWriteDeadline(time.Now().Add(slowtest.Limit(time.Second))); err != nil {
			t.Error(err)
		}
		if _, err := out.Write(make([]byte, 200<<10)); err != nil {
			t.Error(err)
		}
	})
	p.Start()
	if err := p.Finish(false); err != nil || out.Len() != 200<<10 {
		t.Errorf("got %d bytes, err %v", out.Len(), err)
	}
}
