package endpoint

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// What Codex 0.169.0 sends to have its tokens renewed.
const (
	tokensURL   = "https://auth.openai.com/oauth/token"
	codexClient = "app_EMoamEEZ73f0CkXaXp7hrann"
)

const (
	// renewBefore is how long before its end a token is renewed.
	renewBefore = 5 * time.Minute
	// lockWithin is how long a renewal waits for that of another worker.
	lockWithin = time.Minute
	// askAgain is how long a server of tokens that failed is left alone while the present ones last.
	askAgain = 30 * time.Second
	// maxLogin bounds the file of a login, and an answer with tokens.
	maxLogin = 64 << 10
)

// errNotKept means that there are new tokens, in this process only.
var errNotKept = errors.New("renew the login: the new tokens are not")

// A login is what "codex login" has left in a file: a token for calls, which ends soon, and one that renews
// it, once. The workers that share the file renew it one after the other, by a lock beside it.
type login struct {
	path string

	mu    sync.Mutex
	now   tokens    // guarded by mu
	old   string    // the token for calls before, of which answers may be under way; guarded by mu
	bad   bool      // the present one was refused; guarded by mu
	later time.Time // before this the server of tokens is not asked again; guarded by mu
}

// tokens are those of a login.
type tokens struct {
	Access  string                     `json:"access_token"`
	Renewal string                     `json:"refresh_token"`
	Account string                     `json:"account_id"`
	file    map[string]json.RawMessage // all that the file has
}

// readLogin opens the file of a login.
func readLogin(path string) (*login, error) {
	path, err := filepath.EvalSymlinks(path) // what is replaced is the file, not the link
	if err != nil {
		return nil, err
	}
	now, err := readTokens(path)
	if err != nil {
		return nil, err
	}
	return &login{path: path, now: now}, nil
}

func readTokens(path string) (tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return tokens{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxLogin))
	if err != nil {
		return tokens{}, err
	}
	var t tokens
	if json.Unmarshal(data, &t.file) != nil || json.Unmarshal(t.file["tokens"], &t) != nil || t.Access == "" || t.Renewal == "" || t.Account == "" {
		return tokens{}, errors.New("is not the file of a login with ChatGPT, auth.json of codex login")
	}
	return t, nil
}

// lasts reports whether the token for calls can be used for longer than that, or does not tell.
func (t tokens) lasts(longer time.Duration) bool {
	parts := strings.Split(t.Access, ".")
	if len(parts) != 3 {
		return true
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	var says struct {
		Exp float64 `json:"exp"` // RFC 7519, section 4.1.4
	}
	if err != nil || json.Unmarshal(claims, &says) != nil || says.Exp <= 0 {
		return true
	}
	return time.Until(time.Unix(int64(says.Exp), 0)) > longer
}

// credential is what a call is made with.
func (l *login) credential() (access, account string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now.Access, l.now.Account
}

func (l *login) secrets() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return []string{l.now.Access, l.now.Renewal, l.old}
}

// due reports whether the tokens have to be renewed before a call.
func (l *login) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	rests := l.now.lasts(0) && time.Now().Before(l.later)
	return l.bad || !rests && !l.now.lasts(renewBefore)
}

// doubt notes that a token was refused, and reports whether the next call will have another one.
func (l *login) doubt(access string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad = l.bad || access == l.now.Access
	return access != ""
}

func (l *login) use(t tokens) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.old, l.now, l.bad = l.now.Access, t, false
}

// renew has the tokens renewed, unless another worker has done that. Where that fails, the present ones are used
// while they last.
func (l *login) renew(client *http.Client, server string) error {
	err := l.next(client, server)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil || errors.Is(err, errNotKept) || l.bad || !l.now.lasts(0) {
		return err
	}
	l.later = time.Now().Add(askAgain)
	return nil
}

// next takes the tokens that another worker or program has left, or has new ones made.
func (l *login) next(client *http.Client, server string) error {
	ctx, cancel := context.WithTimeout(context.Background(), lockWithin)
	defer cancel()
	lock, err := disk.WaitLock(ctx, l.path+".lock", syscall.LOCK_EX)
	if err != nil {
		return fmt.Errorf("renew the login: %w", err)
	}
	defer func() { _ = lock.Release() }() // it ends with the process at the latest
	before, _ := l.credential()
	t, err := readTokens(l.path)
	if err != nil {
		return fmt.Errorf("renew the login: %s %w", l.path, err)
	}
	if t.Access != before && t.lasts(renewBefore) {
		l.use(t)
		return nil
	}
	err = l.exchange(client, server, t)
	if errors.Is(err, ErrRefused) {
		// A program that knows nothing of the lock may have been quicker.
		if again, readErr := readTokens(l.path); readErr == nil && again.Renewal != t.Renewal && again.lasts(renewBefore) {
			l.use(again)
			return nil
		}
	}
	return err
}

// exchange gives the one token for new ones. The file that will have them is there before that, with as much
// in it, so that a full disk or a directory that is not writable costs no login.
func (l *login) exchange(client *http.Client, server string, t tokens) error {
	fresh, err := reserve(l.path)
	if err != nil {
		return fmt.Errorf("renew the login: %w", err)
	}
	defer fresh.Close()
	given, err := ask(client, server, t.Renewal)
	if err != nil {
		_ = os.Remove(fresh.Name()) // the next one begins it anew
		return err
	}
	next, err := t.with(given)
	if err != nil {
		return fmt.Errorf("renew the login: %w", err)
	}
	l.use(next)
	data, err := json.MarshalIndent(next.file, "", "  ")
	if err == nil {
		_, err = fresh.WriteAt(data, 0)
	}
	if err = errors.Join(err, fresh.Truncate(int64(len(data))), fresh.Sync()); err == nil {
		err = os.Rename(fresh.Name(), l.path)
	}
	if err != nil {
		return fmt.Errorf("%w in %s, so log in again: %w", errNotKept, l.path, err)
	}
	return nil
}

// reserve makes the file that is to replace another one, with its contents, owner and mode.
func reserve(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(owner.Uid), int(owner.Gid)) // only root may, and needs to
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Sync()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// with is the login with the tokens that it was given.
func (t tokens) with(given map[string]string) (tokens, error) {
	kept := map[string]json.RawMessage{}
	if err := json.Unmarshal(t.file["tokens"], &kept); err != nil {
		return t, err
	}
	for name, token := range given {
		kept[name] = encoded(token)
	}
	t.Access = given["access_token"]
	if renewal := given["refresh_token"]; renewal != "" {
		t.Renewal = renewal
	}
	t.file = maps.Clone(t.file)
	t.file["tokens"] = encoded(kept)
	t.file["last_refresh"] = encoded(time.Now().UTC().Format(time.RFC3339Nano))
	return t, nil
}

// ask has a server renew tokens. It returns those that it gives, by the names in the file.
func ask(client *http.Client, server, renewal string) (map[string]string, error) {
	body := encoded(map[string]string{"client_id": codexClient, "grant_type": "refresh_token", "refresh_token": renewal})
	res, err := client.Post(server, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("renew the login: %w", err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxLogin))
	if err != nil {
		return nil, fmt.Errorf("renew the login: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, refusal(res.StatusCode, data)
	}
	var says struct {
		Access  string `json:"access_token"`
		Renewal string `json:"refresh_token"`
		ID      string `json:"id_token"`
	}
	if err := json.Unmarshal(data, &says); err != nil || says.Access == "" {
		return nil, errors.New("renew the login: the answer has no token")
	}
	given := map[string]string{"access_token": says.Access, "refresh_token": says.Renewal, "id_token": says.ID}
	maps.DeleteFunc(given, func(_, token string) bool { return token == "" })
	return given, nil
}

// refusal is what an answer without tokens means.
func refusal(status int, data []byte) error {
	if status >= http.StatusInternalServerError || status < http.StatusBadRequest || status == http.StatusTooManyRequests {
		return fmt.Errorf("renew the login: the server of tokens fails, status %d", status)
	}
	var says struct {
		Error json.RawMessage `json:"error"`
	}
	var code struct {
		Code string `json:"code"`
	}
	var word string
	_ = json.Unmarshal(data, &says) // then it has no word for it
	if json.Unmarshal(says.Error, &word) != nil && json.Unmarshal(says.Error, &code) == nil {
		word = code.Code
	}
	return fmt.Errorf("%w: renew the login: status %d, %.60q; log in again", ErrRefused, status, word)
}
