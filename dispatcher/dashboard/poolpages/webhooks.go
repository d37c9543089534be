package poolpages

import (
	"net/url"
	"slices"
	"time"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

var (
	webhooksPage = page("webhooks")
	webhookPage  = page("webhook")
)

func webhookRoutes() []dashboard.Route {
	return []dashboard.Route{
		{Pattern: "GET /ui/webhooks", Row: operation.WebhookList.Row, Serve: listWebhooks},
		{Pattern: "GET /ui/webhooks/{name}", Row: operation.WebhookDeliveries.Row, Serve: showWebhook},
		{Pattern: "POST /ui/webhooks/{name}/test", Row: operation.WebhookTest.Row, Serve: testWebhook},
		{Pattern: "POST /ui/deliveries/{id}/redeliver", Row: operation.WebhookRedeliver.Row, Serve: redeliver},
	}
}

func listWebhooks(v *dashboard.Visit) error {
	all, err := webhooks(v)
	if err != nil {
		return err
	}
	return v.Render(webhooksPage, dashboard.Page{Title: "Webhooks", Nav: "Webhooks", Refresh: true, Data: all})
}

func webhooks(v *dashboard.Visit) (all []operation.Webhook, err error) {
	for request := (operation.PageRequest{}); ; {
		part, err := dashboard.Look(v, operation.WebhookList, request)
		if err != nil {
			return nil, err
		}
		all = append(all, part.Webhooks...)
		if request.After = part.Next; part.Next == "" {
			return all, nil
		}
	}
}

// webhookShown is the dot of the page of a webhook.
type webhookShown struct {
	operation.Webhook
	Test       *dashboard.Action
	Deliveries []deliveryRow // the newest first
	Failed     bool          // only those that failed
	More       bool          // there are more than were read
}

// A deliveryRow is an attempt to deliver an event, with what can be done about it.
type deliveryRow struct {
	operation.Delivery
	Redeliver *dashboard.Action
}

// showWebhook shows the attempts of the last day, which the pool lists from the oldest on.
func showWebhook(v *dashboard.Visit) error {
	name := v.R.PathValue("name")
	all, err := webhooks(v)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(w operation.Webhook) bool { return w.Name == name })
	if at < 0 {
		return &jobs.CodedError{Code: jobs.CodeNotFound, Message: "there is no webhook " + name}
	}
	shown := webhookShown{Webhook: all[at], Failed: v.R.URL.Query().Has("failed")}
	shown.Test = v.Action(operation.WebhookTest.Row, dashboard.Action{Path: "/ui/webhooks/" + name + "/test", Label: "Send a test", About: name})
	since := time.Now().Truncate(time.Minute).Add(-day)
	var found []operation.Delivery
	for request := (operation.DeliveriesRequest{Name: name, Since: &since, Failed: shown.Failed}); ; {
		part, err := dashboard.Look(v, operation.WebhookDeliveries, request)
		if err != nil {
			return err
		}
		found = append(found, part.Deliveries...)
		if request.After = part.Next; !part.More {
			break
		}
	}
	shown.More = len(found) > rowsOfAPage
	for _, d := range slices.Backward(found[max(0, len(found)-rowsOfAPage):]) {
		shown.Deliveries = append(shown.Deliveries, deliveryRow{d, v.Action(operation.WebhookRedeliver.Row, dashboard.Action{
			Path: "/ui/deliveries/" + url.PathEscape(d.ID) + "/redeliver", Label: "Redeliver", About: d.Type + " of " + d.At.UTC().Format(time.RFC3339), Back: v.R.URL.RequestURI(),
		})})
	}
	return v.Render(webhookPage, dashboard.Page{Title: name, Nav: "Webhooks", Refresh: true, Data: shown})
}

func testWebhook(v *dashboard.Visit) error {
	name := v.R.PathValue("name")
	sent, err := dashboard.Ask(v, operation.WebhookTest, operation.Named{Name: name})
	if err != nil {
		return err
	}
	notice := "webhook-tested"
	if sent.State != operation.DeliveryDone {
		notice = "webhook-failed"
	}
	return v.Redirect(v.Back("/ui/webhooks/"+name, notice, 0))
}

func redeliver(v *dashboard.Visit) error {
	if _, err := dashboard.Ask(v, operation.WebhookRedeliver, operation.DeliveryRef{ID: v.R.PathValue("id")}); err != nil {
		return err
	}
	return v.Redirect(v.Back("/ui/webhooks", "webhook-redelivered", 0))
}
