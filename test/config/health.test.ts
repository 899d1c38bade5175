import assert from 'node:assert/strict'
import { test } from 'node:test'
import { redact } from '../../src/config/secrets/redact.ts'
import { errorsOf, loadGood } from './files.ts'

/** A server with only `health` settings. */
const server = (health: string) => `mcpServers:\n  a:\n    command: a\n    health: ${health}`

test('probes have defaults, and false means no probes', async (t) => {
  const { config } = await loadGood(t, 'mcpServers: { a: { command: a }, b: { command: b, health: false } }')
  assert.deepEqual(config.mcpServers.a?.health, { every: 60_000, failures: 2, slow: { baseline: 2 } })
  assert.equal(config.mcpServers.b?.health, false)
  assert.deepEqual(config.health, { webhooks: [], escalateAfter: 900_000 })
})

test('an impossible probe setting is refused with its line', async (t) => {
  const wrong = {
    '{ every: 10ms }': /^4:22 {2}mcpServers\.a\.health\.every {2}expected a duration from 1s /,
    '{ failures: 0 }': /^4:25 {2}mcpServers\.a\.health\.failures /,
    '{ tool: { arguments: {} } }': /^4:\d+ {2}mcpServers\.a\.health\.tool\.name {2}missing/,
    '{ tool: { name: t, expect: 4 } }':
      /health\.tool\.expect {2}expected a text contained in the answer, or a map/,
    '{ slow: {} }': /^4:\d+ {2}mcpServers\.a\.health\.slow {2}expected one of "p95" and "baseline"/,
    '{ slow: { p95: 1s, baseline: 2 } }': /^4:\d+ {2}mcpServers\.a\.health\.slow {2}expected one of/,
    '{ slow: { baseline: 1 } }': /^4:\d+ {2}mcpServers\.a\.health\.slow\.baseline /,
    '{ evry: 1s }': /^4:\d+ {2}mcpServers\.a\.health\.evry .*every/,
    yes: /^4:13 {2}mcpServers\.a\.health /,
  }
  for (const [health, expected] of Object.entries(wrong)) {
    const errors = await errorsOf(t, server(health))
    assert.equal(errors.length, 1, errors.join('\n'))
    assert.match(errors[0]!, expected)
  }
})

test('an impossible webhook setting is refused with its line, and no error shows a secret', async (t) => {
  const wrong = {
    '{ type: json }': /^3:\d+ {2}health\.webhooks\[0\]\.url {2}missing/,
    '{ type: slack, url: "ftp://s3cret" }':
      /health\.webhooks\[0\]\.url {2}expected a URL that begins with http/,
    '{ type: slack, url: "http://u:s3cret%zz@h/" }':
      /health\.webhooks\[0\]\.url {2}expected user and password/,
    '{ type: json, url: "http://s3cret%ff@h/" }': /health\.webhooks\[0\]\.url {2}expected user and password/,
    '{ type: pagerduty, routingKey: "s3cret key" }':
      /health\.webhooks\[0\]\.routingKey {2}expected an integration key/,
    '{ type: mail, url: "http://s3cret" }': /health\.webhooks\[0\]\.type /,
    '{ type: json, url: "http://s3cret/", name: a b }': /health\.webhooks\[0\]\.name {2}expected 1 to 64/,
    '{ type: json, url: "http://s3cret/", headers: { x-s: "s3cret\\n" } }': /health\.webhooks\[0\]\.headers/,
  }
  for (const [webhook, expected] of Object.entries(wrong)) {
    const errors = await errorsOf(t, `mcpServers: { a: { command: a } }\nhealth:\n  webhooks: [${webhook}]`)
    assert.equal(errors.length, 1, errors.join('\n'))
    assert.match(errors[0]!, expected)
    assert.doesNotMatch(errors[0]!, /s3cret/)
  }
})

test('webhooks have names of their own: their type unless given, and given where there are two of a type', async (t) => {
  const webhook = (more = '', type = 'json') => `{ type: ${type}, url: "http://h/"${more} }`
  const text = (...webhooks: string[]) =>
    `mcpServers: { a: { command: a } }\nhealth: { webhooks: [${webhooks.join()}] }`
  const { config } = await loadGood(
    t,
    text(webhook('', 'slack'), webhook(', name: x'), webhook(', name: json')),
  )
  assert.deepEqual(
    config.health.webhooks.map(({ name }) => name),
    ['slack', 'x', 'json'],
  )
  assert.deepEqual(await errorsOf(t, text(webhook(', name: x'), webhook(', name: x'))), [
    '2:102  health.webhooks[1].name  "x" is already the name of webhooks[0]',
  ])
  assert.deepEqual(await errorsOf(t, text(webhook(', name: x'), webhook())), [
    '2:64  health.webhooks[1]  "name" is missing: there is more than one webhook of type json',
  ])
  assert.deepEqual(await errorsOf(t, text(webhook(', name: slack'), webhook('', 'slack'))), [
    '2:68  health.webhooks[1]  "slack" is already the name of webhooks[0]',
  ])
})

test('URLs, headers and keys of webhooks are shown to nobody', async (t) => {
  const { config } = await loadGood(
    t,
    `mcpServers: { a: { command: a } }
health:
  webhooks:
    - { type: json, url: "https://hooks.example/s3cret", headers: { x-key: s3cret } }
    - { type: slack, url: "https://hooks.slack.example/services/T0/B0/s3cret" }
    - { type: pagerduty, routingKey: s3cret }`,
  )
  const shown = JSON.stringify(redact(config))
  assert.doesNotMatch(shown, /s3cret|hooks\.slack/)
  assert.match(shown, /"name":"slack"/)
})
