package forge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// rest asks a forge that has no library here.
type rest struct {
	place
	by *http.Client
}

// An ask is a request for a path below the API. Query and body may be nil.
type ask struct {
	method, path string
	query        url.Values
	body         any
}

// call makes a request, and reads the answer into a value; nil: nothing is wanted of it.
func (r rest) call(ctx context.Context, a ask, into any) error {
	var sent io.Reader
	if a.body != nil {
		data, err := json.Marshal(a.body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(data)
	}
	address := r.api.String() + a.path
	if len(a.query) > 0 {
		address += "?" + a.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, a.method, address, sent)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "penstock")
	if a.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	got, err := r.by.Do(request)
	if err != nil {
		return lost(err)
	}
	defer got.Body.Close()
	data, err := io.ReadAll(got.Body)
	if got.StatusCode < 200 || got.StatusCode > 299 {
		return refusal(got, reasonIn(data), false)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return &Error{Kind: Away, Status: got.StatusCode, Message: fmt.Sprintf("%s %s: unreadable answer: %v", a.method, request.URL.Path, err)}
	}
	return nil
}

// reasonIn is what the body of a refusal says: GitLab has a list or an object under message.
func reasonIn(body []byte) string {
	var said struct {
		Message json.RawMessage `json:"message"`
		Error   string          `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil {
		return "no reason"
	}
	var text string
	var list []string
	switch {
	case json.Unmarshal(said.Message, &text) == nil && text != "":
		return text
	case json.Unmarshal(said.Message, &list) == nil && len(list) > 0:
		return errors.Join(errorsOf(list)...).Error()
	case len(said.Message) > 0:
		return string(said.Message[:min(len(said.Message), 500)])
	case said.Error != "":
		return said.Error
	}
	return "no reason"
}

func errorsOf(list []string) (all []error) {
	for _, text := range list {
		all = append(all, errors.New(text))
	}
	return all
}
