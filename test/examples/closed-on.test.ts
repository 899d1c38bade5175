import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer } from '../e2e/support/raw-server.ts'
import { OtlpReceiver } from '../support/otlp-receiver.ts'
import { until } from '../support/until.ts'
import { copyWith } from './copy.ts'

const run = promisify(execFile)

const everyDay = ['sunday', 'monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday']

/** The example of CONTRIBUTING: a module and a line add a policy everywhere. */
test('a policy is one module and one line', async (t) => {
  t.after(async () => {
    await cleanUp()
    closeServers()
  })
  const src = await copyWith(t, {
    module: 'closed-on',
    folder: 'policies',
    name: 'closedOn',
    registry: 'index.js',
    before: 'degrade,',
    line: '    closedOn,',
  })
  const receiver = await OtlpReceiver.start(t)
  const server = await RawServer.start(() => false, ['read'])
  const gateway = await Gateway.start(
    {
      servers: { shop: { url: server.url } },
      policies: { defaults: { closedOn: { days: everyDay } } },
    },
    {
      main: join(src, 'main.js'),
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_BSP_SCHEDULE_DELAY: '20' },
    },
  )
  const client = await RawClient.open(gateway.mcp('shop'))
  const { error } = (await client.call('read')) as { error: { code: number; message: string; data: Json } }
  const day = everyDay.find((name) => error.message.includes(name))

  await t.test('the error of the policy has its reason, its words and its time to retry', () => {
    assert.match(error.message, /^shop\/read: shop is closed on \w+; it was not sent; try again in /)
    const { retryAfterMs, ...data } = error.data
    assert.equal(typeof retryAfterMs, 'number')
    assert.deepEqual(
      [error.code, data],
      [
        1503,
        {
          code: 'BW_CLOSED_TODAY',
          reason: 'closed_today',
          by: 'closedOn',
          server: 'shop',
          tool: 'read',
          retryable: true,
          attempts: 0,
          sent: false,
        },
      ],
    )
  })

  await t.test('actions of the policy are counted, as rejections and in a separate metric', async () => {
    assert.equal(await gateway.metric('breakwater_rejections_total', 'reason="closed_today"'), 1)
    assert.equal(await gateway.metric('breakwater_closed_days_total', `day="${day}"`), 1)
  })

  await t.test('the span of the call has the attribute and the event of the policy', async () => {
    const [span] = await receiver.has(1)
    assert.equal(span?.attributes['breakwater.came_on'], day)
    const said = span?.events.map(({ attributes }) => attributes) ?? []
    assert.deepEqual(
      said.map((one) => [
        one['breakwater.policy.name'],
        one['breakwater.policy.decision'],
        one['breakwater.policy.reason'],
      ]),
      [
        ['closedOn', 'turned_away', day],
        ['closedOn', 'rejected', 'closed_today'],
      ],
    )
  })

  await t.test('the access log has the key of the policy', async () => {
    await until('the call is logged', () => gateway.log.some(({ msg }) => msg === 'call'))
    assert.equal(gateway.log.find(({ msg }) => msg === 'call')?.cameOn, day)
  })

  await t.test('the policy has its place in the chain', async () => {
    const { body } = await gateway.admin<{ other: { layer: string }[] }[]>('/admin/mesh')
    const layers = body[0]?.other.map(({ layer }) => layer) ?? []
    assert.equal(layers.indexOf('closedOn'), layers.indexOf('arguments') + 1)
  })

  await t.test('editors know the settings of the policy', async () => {
    const { stdout } = await run(process.execPath, [join(src, 'config/schema/json-schema.js')], {
      maxBuffer: 2 ** 24,
    })
    assert.match(stdout, /Rejects calls on some days of the week/)
    assert.match(stdout, /Days of the week, in UTC/)
  })

  await t.test('the documentation describes the policy', async () => {
    await run(process.execPath, [join(src, '../docs/generate/pages.js')], { cwd: src })
    assert.match(await readFile(join(src, 'docs/policies.md'), 'utf8'), /\(policies\/closedOn\.md\)/)
    const page = await readFile(join(src, 'docs/policies/closedOn.md'), 'utf8')
    for (const told of [
      '# `closedOn`',
      'BW_CLOSED_TODAY',
      'breakwater_closed_days_total',
      'breakwater.came_on',
    ])
      assert.ok(page.includes(told), told)
  })
})
