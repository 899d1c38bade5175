import { z } from 'zod'
import { duration } from '../../units/duration.ts'
import { secrets } from '../secrets/secrets.ts'
import { headers } from './header-schema.ts'
import { httpUrl } from './http-url.ts'

const tool = z
  .strictObject({
    name: z.string().min(1).max(256).describe('The tool, as its server calls it. It must do no harm.'),
    arguments: z.record(z.string(), z.unknown()).default({}).describe('What it is called with.'),
    expect: z
      .union([z.string().min(1).max(10_000), z.record(z.string(), z.unknown())], {
        error: 'expected a text that the answer holds, or a map of structuredContent',
      })
      .optional()
      .describe(
        'What has to come: a text that is part of the answer, or values that its structuredContent has among others. Unless given, any result that is no error.',
      ),
  })
  .describe('A tool that each probe calls.')

const slow = z
  .strictObject({
    p95: duration({ min: 1 })
      .optional()
      .describe('Most that 95 % of pings, and of calls of the tool, may take.'),
    baseline: z
      .number()
      .min(1.1)
      .max(100)
      .optional()
      .describe(
        'Most that they, and the lists, may take, as a multiple of the median of well probes; and never less than 100 ms above it.',
      ),
  })
  .refine(({ p95, baseline }) => (p95 === undefined) !== (baseline === undefined), {
    message: 'expected one of "p95" and "baseline"',
  })

/** How the health of a server is watched. */
export const serverHealth = z
  .strictObject({
    every: duration({ min: 1_000 })
      .default(60_000)
      .describe(
        'Between two probes while it is well. In doubt they come six times as often, at most once a second; while it is down after 1 s, 2 s and so on, up to 30 s.',
      ),
    failures: z
      .int()
      .min(1)
      .max(10)
      .default(2)
      .describe('Probes in a row that have to fail for an incident. The end of its process is one at once.'),
    tool: tool.optional(),
    slow: z
      .union([slow, z.literal(false)])
      .prefault({ baseline: 2 })
      .describe(
        'When a probe counts as slow: `p95`, a bound, or `baseline`, a multiple of what is usual. `failures` slow ones of the last 20, the latest among them, are an incident. `false`: never.',
      ),
  })
  .describe('How its health is watched.')

export type ServerHealthConfig = z.output<typeof serverHealth>
export type ProbeTool = NonNullable<ServerHealthConfig['tool']>

/** Targets of notices: the whole URL is secret, since its path is often the key. */
const secretUrl = httpUrl().register(secrets, { secrecy: 'text' })

const name = z
  .string()
  .regex(/^[A-Za-z0-9][\w.-]{0,63}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ . -')
  .optional()
  .describe(
    'What metrics, log and incidents call it. Its type unless given; to be given where there is another one of that type.',
  )

const webhook = z
  .discriminatedUnion('type', [
    z
      .strictObject({
        type: z.literal('json').describe('An object of our own, by POST.'),
        name,
        url: secretUrl.describe('Where it is posted to. Redirects are not followed.'),
        headers: headers.default({}).describe('Sent with it.'),
      })
      .meta({ title: 'JSON' }),
    z
      .strictObject({
        type: z.literal('slack').describe('An incoming webhook of Slack.'),
        name,
        url: secretUrl.describe('The URL that Slack gave.'),
      })
      .meta({ title: 'Slack' }),
    z
      .strictObject({
        type: z.literal('pagerduty').describe('Events API v2 of PagerDuty.'),
        name,
        routingKey: z
          .string()
          .regex(/^[\x21-\x7e]{1,256}$/, 'expected an integration key: visible ASCII without spaces')
          .register(secrets, { secrecy: 'text' })
          .describe('The integration key of the service.'),
        url: secretUrl
          .default('https://events.pagerduty.com/v2/enqueue')
          .describe('Where events go: another one for the EU, or a relay.'),
      })
      .meta({ title: 'PagerDuty' }),
  ])
  .describe('Who is told of incidents.')

/**
 * Gives each webhook its own name, by which later configs and processes recognize the webhook. A number by position
 * would change when another webhook is inserted before.
 */
function named(given: readonly z.output<typeof webhook>[], context: z.core.$RefinementCtx) {
  const taken = new Map<string, number>()
  return given.map((one, index) => {
    const refuse = (message: string) =>
      context.addIssue({ code: 'custom', message, path: one.name === undefined ? [index] : [index, 'name'] })
    const name = one.name ?? one.type
    const twin = taken.get(name)
    if (one.name === undefined && given.some(({ type }, other) => type === one.type && other !== index))
      refuse(`"name" is missing: there is more than one webhook of type ${one.type}`)
    else if (twin === undefined) taken.set(name, index)
    else refuse(`"${name}" is the name of webhooks[${twin}] already`)
    return { ...one, name }
  })
}

/** The block `health`. */
export const health = z
  .strictObject({
    webhooks: z
      .array(webhook)
      .max(16)
      .default([])
      .transform(named)
      .describe('Who is told when an incident begins, goes on for long, and ends; each of them once.'),
    escalateAfter: duration({ min: 1_000 })
      .default(15 * 60_000)
      .describe('How long an incident may be open before all webhooks are told so.'),
  })
  .prefault({})
  .describe('Incidents of servers, and who is told of them.')

export type HealthConfig = z.output<typeof health>
export type WebhookConfig = HealthConfig['webhooks'][number]
