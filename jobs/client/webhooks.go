package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"iter"

	"github.com/penstock-run/penstock/jobs/operation"
)

// Webhooks asks about the webhooks by which the pool tells others what happens to its
// jobs.
type Webhooks struct{ c *Client }

// Webhooks returns the operations on webhooks.
func (c *Client) Webhooks() Webhooks { return Webhooks{c} }

// Add has events sent from now on. A request without a secret gets one, which is the
// first result: the pool does not tell it again. A webhook of that name is an error.
func (w Webhooks) Add(ctx context.Context, want operation.WebhookRequest) (made string, added operation.Webhook, err error) {
	want, made = withSecret(want)
	added, err = Ask(ctx, w.c, operation.WebhookAdd, want)
	return made, added, err
}

// Replace is Add that replaces a webhook of that name. Its old secret signs, too, for
// another 24 hours.
func (w Webhooks) Replace(ctx context.Context, want operation.WebhookRequest) (made string, replaced operation.Webhook, err error) {
	want, made = withSecret(want)
	replaced, err = Ask(ctx, w.c, operation.WebhookReplace, want)
	return made, replaced, err
}

// withSecret makes the secret of a request that has none.
func withSecret(want operation.WebhookRequest) (request operation.WebhookRequest, made string) {
	if want.Secret != "" {
		return want, ""
	}
	var key [32]byte
	_, _ = rand.Read(key[:]) // it never fails: the program ends instead
	want.Secret = operation.SecretPrefix + base64.StdEncoding.EncodeToString(key[:])
	return want, want.Secret
}

// List returns the webhooks by name.
func (w Webhooks) List(ctx context.Context) iter.Seq2[operation.Webhook, error] {
	return pages("", func(after string) ([]operation.Webhook, string, error) {
		page, err := Ask(ctx, w.c, operation.WebhookList, operation.PageRequest{After: after})
		return page.Webhooks, page.Next, err
	})
}

// Remove has nothing sent any more.
func (w Webhooks) Remove(ctx context.Context, name string) error {
	_, err := Ask(ctx, w.c, operation.WebhookRemove, operation.Named{Name: name})
	return err
}

// Test sends a test event now and returns what came of it.
func (w Webhooks) Test(ctx context.Context, name string) (operation.Delivery, error) {
	return Ask(ctx, w.c, operation.WebhookTest, operation.Named{Name: name})
}

// Deliveries returns the attempts that a request selects, the oldest first.
func (w Webhooks) Deliveries(ctx context.Context, want operation.DeliveriesRequest) iter.Seq2[operation.Delivery, error] {
	return func(yield func(operation.Delivery, error) bool) {
		for {
			page, err := Ask(ctx, w.c, operation.WebhookDeliveries, want)
			if err != nil {
				yield(operation.Delivery{}, err)
				return
			}
			for _, d := range page.Deliveries {
				if !yield(d, nil) {
					return
				}
			}
			if want.After = page.Next; !page.More {
				return
			}
		}
	}
}

// Redeliver has an event delivered again, by the id of its delivery.
func (w Webhooks) Redeliver(ctx context.Context, id string) error {
	_, err := Ask(ctx, w.c, operation.WebhookRedeliver, operation.DeliveryRef{ID: id})
	return err
}
