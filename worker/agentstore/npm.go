package agentstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// An NPMError is what npm says when it cannot install a package.
type NPMError struct {
	Code    string // its word for the reason: "ETARGET"
	Summary string
}

func (e *NPMError) Error() string { return "npm: " + e.Summary }

// Unknown reports whether the registry has no such package, or no such version of it.
func (e *NPMError) Unknown() bool { return e.Code == "E404" || e.Code == "ETARGET" }

// Unreachable reports whether the registry was not reached.
func (e *NPMError) Unreachable() bool {
	return slices.Contains([]string{
		"ECONNREFUSED", "ECONNRESET", "ENOTFOUND", "EAI_AGAIN", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH", "ERR_SOCKET_TIMEOUT", "ENOTCACHED",
	}, e.Code) || strings.HasPrefix(e.Code, "E5") // a status of HTTP
}

// npmArguments settle what the user's own settings of npm could change: what is installed, where
// and how. Which registry, which proxy and which credentials is up to those settings.
var npmArguments = []string{
	"install", "--ignore-scripts", "--global=false", "--workspaces=false", "--dry-run=false", "--include=optional", "--omit=dev",
	"--install-strategy=hoisted", "--bin-links=true", "--save=true", "--save-exact", "--package-lock=false",
	"--audit=false", "--fund=false", "--update-notifier=false", "--json", "--loglevel=error",
}

// fetch has npm install the package in a tree. No script of it or of another package runs. The
// lock of the temporary directory is open in npm, too, so that no other program removes the
// directory while npm writes to it.
func (r Request) fetch(ctx context.Context, tree string, lock *os.File) error {
	if err := os.Mkdir(tree, 0o755); err != nil { //nolint:gosec // programs in jails look into it
		return err
	}
	// Without it npm would look for a project in the directories above.
	if err := os.WriteFile(filepath.Join(tree, "package.json"), []byte(`{"private":true}`), 0o644); err != nil { //nolint:gosec // as npm makes it
		return err
	}
	cmd := exec.CommandContext(ctx, r.NPM, append(npmArguments, "--prefix", tree, r.Package.Name+"@"+r.Version)...)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = tree, r.Env, []*os.File{lock}
	cmd.SysProcAttr = ending()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second // what it began may keep the pipe open
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	// On Linux npm ends with the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil {
		// It names the registry, or does not, as the user's settings say. Without it, the
		// files of a version have one digest on all hosts.
		err = os.RemoveAll(filepath.Join(tree, modulesName, ".package-lock.json"))
	}
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		return err
	}
	return npmError(out.Bytes(), problems.String(), err)
}

// Published lists the versions of a package that the registry has.
func Published(ctx context.Context, npm string, env []string, pkg string) ([]string, error) {
	cmd := exec.CommandContext(ctx, npm, "view", pkg, "versions", "--json", "--loglevel=error")
	cmd.Env, cmd.SysProcAttr = env, ending()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second // what it began may keep the pipe open
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	runtime.LockOSThread() // on Linux npm ends with the thread that starts it
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return nil, npmError(out.Bytes(), problems.String(), err)
	}
	if err != nil {
		return nil, err
	}
	var one string
	if json.Unmarshal(out.Bytes(), &one) == nil {
		return []string{one}, nil // it makes no list of one
	}
	var all []string
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		return nil, fmt.Errorf("npm view %s versions: %w", pkg, err)
	}
	return all, nil
}

// npmError is what npm has printed about its end.
func npmError(out []byte, problems string, err error) error {
	var said struct {
		Error struct {
			Code    string `json:"code"`
			Summary string `json:"summary"`
		} `json:"error"`
	}
	if json.Unmarshal(out, &said) == nil && said.Error.Summary != "" {
		return &NPMError{said.Error.Code, said.Error.Summary}
	}
	return fmt.Errorf("npm: %w: %.500s", err, strings.TrimSpace(problems))
}
