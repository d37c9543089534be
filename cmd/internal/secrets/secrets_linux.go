package secrets

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// secretsVariable has the number of the descriptor with the secrets, in the
// environment of a process that has started over.
const secretsVariable = cli.EnvPrefix + "SECRETS_FD"

// startOver executes this program once more, with the same arguments and as the
// same process, and with the secrets in memory that has no name. It returns only
// if it could not.
func startOver(secrets map[string]string, environ []string) error {
	fd, err := unix.MemfdCreate("secrets", 0) // it stays open across the execution
	if err != nil {
		return staysKnown(err)
	}
	f := os.NewFile(uintptr(fd), "secrets")
	defer f.Close()
	if _, err := f.Write(join(secrets)); err != nil {
		return staysKnown(err)
	}
	return staysKnown(syscall.Exec("/proc/self/exe", os.Args, append(environ, secretsVariable+"="+strconv.Itoa(fd))))
}

func staysKnown(err error) error {
	return fmt.Errorf("the keys stay in the environment of this process, where its user's other programs can read them: %w", err)
}

// inherited reads the secrets of a process that has started over; nil: it has
// not. From then on other processes of the same user cannot read this one's
// memory, nor follow its system calls.
func inherited() (map[string]string, error) {
	text, ok := os.LookupEnv(secretsVariable)
	if !ok {
		return nil, nil
	}
	_ = os.Unsetenv(secretsVariable) // as in Take
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, errors.New(secretsVariable + " is set by penstock itself, for itself; unset it")
	}
	f := os.NewFile(uintptr(fd), "secrets")
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err == nil {
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("take over the secrets: %w", err)
	}
	return split(data), nil
}
