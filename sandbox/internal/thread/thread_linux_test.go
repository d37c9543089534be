package thread

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The thread is not the main one, which never ends, and is gone soon after.
func TestAloneEndsItsThread(t *testing.T) {
	for range 20 {
		id := make(chan int, 1)
		go Alone(func() { id <- unix.Gettid() })
		tid := <-id
		if tid == unix.Getpid() {
			t.Fatal("it ran on the main thread")
		}
		for task := fmt.Sprintf("/proc/self/task/%d", tid); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(task); os.IsNotExist(err) {
				break
			}
		}
	}
}
