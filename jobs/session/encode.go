package session

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs"
)

// encode writes an event as it is stored. What an agent made is not trusted
// to be JSON, nor to be small.
func encode(e jobs.Event) ([]byte, error) {
	if len(e.Data) > 0 && !json.Valid(e.Data) {
		e.Data = textOf(e.Data)
	}
	if e.Raw != nil && len(e.Raw.JSON) > 0 && !json.Valid(e.Raw.JSON) {
		raw := *e.Raw
		raw.Text, raw.JSON = string(raw.JSON), nil
		e.Raw = &raw
	}
	data, err := json.Marshal(e)
	for limit := 64 << 10; err == nil && len(data) > jobs.MaxEventBytes; limit /= 4 {
		if limit < 64 {
			// The event has very many small texts instead of one long one.
			e.Data = textOf(cut(string(e.Data), 4<<10))
			data, err = json.Marshal(e)
			break
		}
		data, err = json.Marshal(shorten(e, limit))
	}
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", e.Kind, err)
	}
	return data, nil
}

func textOf[T ~string | ~[]byte](text T) json.RawMessage {
	data, err := json.Marshal(map[string]string{"text": string(text)})
	if err != nil {
		return nil // a string is always JSON
	}
	return data
}

// shorten cuts every text of an event at limit bytes.
func shorten(e jobs.Event, limit int) jobs.Event {
	if e.Raw != nil {
		raw := *e.Raw
		if len(raw.JSON) > limit {
			raw.Text, raw.JSON = string(raw.JSON), nil
		}
		raw.Text = cut(raw.Text, limit)
		e.Raw = &raw
	}
	var data any
	if json.Unmarshal(e.Data, &data) == nil {
		if short, err := json.Marshal(shortenValue(data, limit)); err == nil {
			e.Data = short
		}
	}
	return e
}

func shortenValue(v any, limit int) any {
	switch v := v.(type) {
	case string:
		return cut(v, limit)
	case []any:
		for i := range v {
			v[i] = shortenValue(v[i], limit)
		}
	case map[string]any:
		for name := range v {
			v[name] = shortenValue(v[name], limit)
		}
	}
	return v
}

// cut keeps the beginning of a text and says how much is missing.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	keep := limit
	for keep > 0 && !utf8.RuneStart(s[keep]) {
		keep--
	}
	return fmt.Sprintf("%s … [%d bytes cut]", s[:keep], len(s)-keep)
}
