package delivery

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// maxMessages bounds what commits are themselves, without their files.
const maxMessages = 64 << 20

// A commitText is a commit as git stores it.
type commitText struct {
	id   string // "" if it is not stored
	text []byte
}

// readCommits returns the commits from the base to tip, parents first.
func (o Origin) readCommits(ctx context.Context, tip string) ([]commitText, error) {
	over := &changes.LimitError{What: "bytes of commit messages", Limit: maxMessages}
	var ids, all bytes.Buffer
	list := []string{"rev-list", "--reverse", "--topo-order", tip, "--not", o.Base}
	if err := o.Repo.Pipe(ctx, nil, &git.LimitedWriter{To: &ids, Left: maxMessages, Err: over}, list...); err != nil {
		return nil, err
	}
	if err := o.Repo.Pipe(ctx, &ids, &git.LimitedWriter{To: &all, Left: maxMessages, Err: over}, "cat-file", "--batch"); err != nil {
		return nil, err
	}
	var texts []commitText
	for r := bufio.NewReader(&all); ; {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return texts, nil
		}
		var c commitText
		var size int
		if _, err := fmt.Sscanf(line, "%s commit %d\n", &c.id, &size); err != nil || size > maxMessages {
			return nil, fmt.Errorf("git cat-file printed %q", line)
		}
		c.text = make([]byte, size)
		if _, err := io.ReadFull(r, c.text); err != nil {
			return nil, fmt.Errorf("read commit %s: %w", c.id, err)
		}
		if _, err := r.Discard(1); err != nil {
			return nil, fmt.Errorf("read commit %s: %w", c.id, err)
		}
		texts = append(texts, c)
	}
}

// writeCommits stores commits, parents first, as d wants them, and returns
// the last one's id. However many they are, it is one process.
func (o Origin) writeCommits(ctx context.Context, texts []commitText, d Delivery) (string, error) {
	dir := filepath.Join(o.Home, "commits")
	if err := o.Trash.Remove(ctx, dir); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	renamed := map[string]string{}
	var names, want strings.Builder
	last := ""
	for i, c := range texts {
		text := rewrite(c.text, d, renamed)
		last = objectID(text, len(o.Base))
		renamed[c.id] = last
		name := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return "", err
		}
		names.WriteString(name + "\n")
		want.WriteString(last + "\n")
	}
	var got bytes.Buffer
	if err := o.Repo.Pipe(ctx, strings.NewReader(names.String()), &got, "hash-object", "-t", "commit", "-w", "--no-filters", "--stdin-paths"); err != nil {
		return "", err
	}
	if got.String() != want.String() {
		return "", errors.New("git stored other commits than it was given")
	}
	return last, nil
}

func objectID(text []byte, idLen int) string {
	content := append([]byte("commit "+strconv.Itoa(len(text))+"\x00"), text...)
	if idLen == 64 {
		sum := sha256.Sum256(content)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(content) // git's names, not ours
	return hex.EncodeToString(sum[:])
}

var (
	personLine  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(author|committer) .*?( -?[0-9]+ [+-][0-9]+)$`) })
	trailerLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*: \S`) })
)

// rewrite returns a commit with its parents renamed and what d adds to it. A
// signature does not survive that: it was for another text.
func rewrite(text []byte, d Delivery, renamed map[string]string) []byte {
	head, message, _ := strings.Cut(string(text), "\n\n")
	var out strings.Builder
	dropped := false
	for line := range strings.SplitSeq(strings.TrimSuffix(head, "\n"), "\n") {
		key, value, _ := strings.Cut(line, " ")
		if key != "" {
			dropped = key == "gpgsig" || key == "gpgsig-sha256"
		}
		if dropped {
			continue
		}
		switch {
		case key == "parent" && renamed[value] != "":
			line = "parent " + renamed[value]
		case d.Author != "" && (key == "author" || key == "committer"):
			if m := personLine().FindStringSubmatch(line); m != nil {
				line = key + " " + d.Author + m[2]
			}
		}
		out.WriteString(line + "\n")
	}
	return []byte(out.String() + "\n" + withTrailers(message, d))
}

// withTrailers ends a message with the delivery's own trailers. It removes the agent's
// lines with the same keys: an agent must not sign for another job.
func withTrailers(message string, d Delivery) string {
	if len(d.Trailers) == 0 {
		return message
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(message, " \t\r\n"), "\n") {
		if !hasKeyOf(line, d.Trailers) {
			lines = append(lines, strings.TrimSuffix(line, "\r"))
		}
	}
	body := strings.TrimRight(strings.Join(lines, "\n"), " \t\n")
	if strings.TrimSpace(body) == "" {
		body = d.Message
	}
	between := "\n\n"
	if at := strings.LastIndex(body, "\n\n"); at >= 0 && areTrailers(body[at+2:]) {
		between = "\n"
	}
	return body + between + strings.Join(d.Trailers, "\n") + "\n"
}

func hasKeyOf(line string, trailers []string) bool {
	key, _, found := strings.Cut(line, ":")
	for _, t := range trailers {
		own, _, _ := strings.Cut(t, ":")
		if found && strings.EqualFold(strings.TrimSpace(key), own) {
			return true
		}
	}
	return false
}

func areTrailers(paragraph string) bool {
	for line := range strings.SplitSeq(paragraph, "\n") {
		if !trailerLine().MatchString(line) {
			return false
		}
	}
	return true
}
