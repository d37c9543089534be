package token

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox/jailinit"
	"golang.org/x/sys/unix"
)

// Marked lists the tokens that living processes carry.
func Marked() (tokens []string, err error) {
	found, err := markedProcesses()
	for _, m := range found {
		tokens = append(tokens, m.token)
	}
	return tokens, err
}

type marked struct {
	pid   int
	token string
}

// markedProcesses lists processes that carry a token, in their arguments or,
// where there is no jail around them, in their environment.
func markedProcesses() ([]marked, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []marked
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if token := tokenOf(pid); token != "" {
			found = append(found, marked{pid, token})
		}
	}
	return found, nil
}

func tokenOf(pid int) string {
	for file, mark := range map[string]string{"cmdline": jailinit.Mark, "environ": jailinit.EnvMark} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			continue // it ended, or it belongs to another program
		}
		for field := range strings.SplitSeq(string(b), "\x00") {
			token, ok := strings.CutPrefix(field, mark)
			if _, _, valid := parse(token); ok && valid {
				return token
			}
		}
	}
	return ""
}

// Kill kills what carries token and returns how many were alive.
func Kill(token string) (alive int) {
	for range 1000 { // a fork bomb may need several rounds
		found, err := markedProcesses()
		if err != nil {
			return alive
		}
		alive = 0
		for _, m := range found {
			if m.token != token || State(m.pid) == "Z" {
				continue
			}
			alive++
			fd, err := unix.PidfdOpen(m.pid, 0)
			if err != nil {
				continue
			}
			if tokenOf(m.pid) == token {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
			}
			unix.Close(fd)
		}
		if alive == 0 {
			return 0
		}
	}
	return alive
}
