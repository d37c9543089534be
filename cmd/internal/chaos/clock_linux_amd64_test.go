package chaos

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// child makes this binary tell the time for ever.
const child = "CHAOS_TEST_CHILD"

func TestTelling(t *testing.T) {
	if os.Getenv(child) == "" {
		t.Skip("it is for another test to start")
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		fmt.Println(time.Now().UnixNano(), time.Since(began).Nanoseconds())
	}
}

// A program with a clock of its own sees it moved, and nothing else: its
// monotonic clock goes on, and so does everybody else's time.
func TestAMovedClock(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestTelling$")
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), child+"=1"), apart()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := startTimed(cmd)
	if err != nil {
		t.Skipf("no clock can be moved here: %v", err)
	}
	defer c.close()
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}()
	lines, last := bufio.NewScanner(out), int64(0)
	for _, by := range []time.Duration{0, 10 * time.Minute, -2 * time.Hour, 0} {
		if err := c.move(by); err != nil {
			t.Fatal(err)
		}
		for { // what was told before is still on its way
			var wall, since int64
			if !lines.Scan() {
				t.Fatal("it has ended")
			}
			if _, err := fmt.Sscan(lines.Text(), &wall, &since); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			if since < last || since > last+int64(time.Minute) {
				t.Fatalf("the monotonic clock went from %d to %d", last, since)
			}
			last = since
			// A busy machine may tell late, but not by a minute.
			if off := time.Until(time.Unix(0, wall)) - by; off.Abs() < time.Minute {
				break
			}
		}
	}
}
