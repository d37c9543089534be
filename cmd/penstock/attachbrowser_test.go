package main

import (
	"encoding/json"
	"flag"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/dashboard/browsertest"
	"github.com/penstock-run/penstock/jobs"
)

var shots = flag.String("shots", "", "directory for pictures of pages")

// hostileOutput is what a program writes that would act on the page, or on who looks at
// it: titles, colors, a link, the clipboard; markup; and questions to the terminal, of
// which only the last two have answers.
const hostileOutput = `\033]0;owned\007\033]1;owned\007\033]2;owned\033\\\033]4;1;rgb:00/00/00\007\033]10;#000000\007\033]11;#ff0000\007\033]12;#ff0000\007` +
	`\033]104\007\033]110\007\033]111\007\033]112\007\033]52;c;b3duZWQ=\007\033]8;;https://example.com/\033\\runs\033]8;;\033\\ <img src=x onerror=alert(1)>\n` +
	`\033]4;1;?\007\033]10;?\007\033]11;?\007\033]12;?\007\033]52;c;?\007\033[>c\033[4$p\033[?25$p\033P$qm\033\\\033[21t\033[18t\033[c\033[6n`

// A person uses a terminal of an agent in a browser: what it shows and what is typed
// outlive a server that is killed, and what hostile programs write stays on its screen.
func TestATerminalInTheBrowser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	browsertest.Programs(t, browsertest.Puppeteer, browsertest.Axe)
	address := freeAddress(f)
	serve, args := f.serve("--http", address)
	f.worker("--slots", "1")
	id := f.submit("printf '" + hostileOutput + "' >hostile; echo begun; " + untilGoOn)
	f.runs(id)
	b := f.browse("testdata/attach.cjs", map[string]any{"url": "http://" + address, "token": f.httpToken(), "job": id, "shots": *shots})
	b.until("looked")
	b.until("counting")
	serve.kill()
	b.until("away")
	f.start("serving", append(args, "--ui-read-only")...)
	b.goOn()
	var got []int
	f.must(json.Unmarshal([]byte(b.until("numbers")), &got))
	for i, n := range got {
		if n != i+1 {
			t.Errorf("the screen has the lines %v", got)
			break
		}
	}
	if len(got) != 150 {
		t.Errorf("the screen has %d lines, want 150", len(got))
	}
	if said := b.until("state"); said != "Terminal 1: The program has ended with 7." {
		t.Errorf("the page says %q", said)
	}
	b.until("done")
	if rec := f.record(id); rec.State != jobs.Finished {
		t.Errorf("the job is %s", rec.State)
	}
}
