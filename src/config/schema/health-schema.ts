import { z } from 'zod'
import { duration } from '../../units/duration.ts'
import { secrets } from '../secrets/secrets.ts'
import { headers } from './header-schema.ts'
import { httpUrl } from './http-url.ts'

const tool = z
  .strictObject({
    name: z.string().min(1).max(256).describe('The tool, by its name at the server. Calls must be harmless.'),
    arguments: z.record(z.string(), z.unknown()).default({}).describe('The arguments of the call.'),
    expect: z
      .union([z.string().min(1).max(10_000), z.record(z.string(), z.unknown())], {
        error: 'expected a text contained in the answer, or a map of structuredContent',
      })
      .optional()
      .describe(
        'The expected answer: a text contained in the answer, or values contained in its structuredContent. Default: any result except an error.',
      ),
  })
  .describe('A tool that each probe calls.')

const slow = z
  .strictObject({
    p95: duration({ min: 1 })
      .optional()
      .describe('Limit for the duration of 95 % of the pings and of the tool calls.'),
    baseline: z
      .number()
      .min(1.1)
      .max(100)
      .optional()
      .describe(
        'Limit for the duration of pings, tool calls and lists, as a multiple of the median of probes that were not slow; at least 100 ms above the median.',
      ),
  })
  .refine(({ p95, baseline }) => (p95 === undefined) !== (baseline === undefined), {
    message: 'expected one of "p95" and "baseline"',
  })

export const serverHealth = z
  .strictObject({
    every: duration({ min: 1_000 })
      .default(60_000)
      .describe(
        'Time between probes of a healthy server. While its state is in doubt, probes are six times as frequent, at most once a second. A server that is down is probed after 1 s, 2 s and so on, up to 30 s.',
      ),
    failures: z
      .int()
      .min(1)
      .max(10)
      .default(2)
      .describe(
        'Failed probes in a row that make an incident. The end of the process makes an incident at once.',
      ),
    tool: tool.optional(),
    slow: z
      .union([slow, z.literal(false)])
      .prefault({ baseline: 2 })
      .describe(
        'When a probe counts as slow: `p95`, a limit, or `baseline`, a multiple of the usual time. If `failures` of the last 20 probes, including the latest, are slow, an incident begins. `false`: never.',
      ),
  })
  .describe('Health probes of the server.')

export type ServerHealthConfig = z.output<typeof serverHealth>
export type ProbeTool = NonNullable<ServerHealthConfig['tool']>

/** URL of a receiver of notices. The whole URL is secret, because its path often contains a key. */
const secretUrl = httpUrl().register(secrets, { secrecy: 'text' })

const name = z
  .string()
  .regex(/^[A-Za-z0-9][\w.-]{0,63}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ . -')
  .optional()
  .describe(
    'Name in metrics, log and incidents. Default: the type. Required if several webhooks have the same type.',
  )

const webhook = z
  .discriminatedUnion('type', [
    z
      .strictObject({
        type: z.literal('json').describe("Breakwater's own JSON object, by POST."),
        name,
        url: secretUrl.describe('The URL of the POST. Redirects are not followed.'),
        headers: headers.default({}).describe('Headers of the POST.'),
      })
      .meta({ title: 'JSON' }),
    z
      .strictObject({
        type: z.literal('slack').describe('An incoming webhook of Slack.'),
        name,
        url: secretUrl.describe('The URL from Slack.'),
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
          .describe('The URL for events; change it for the EU, or for a relay.'),
      })
      .meta({ title: 'PagerDuty' }),
  ])
  .describe('A receiver of notices about incidents.')

/**
 * Gives each webhook a unique name, by which later configs and processes recognize it. A number by position would
 * change when another webhook is inserted before.
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
    else refuse(`"${name}" is already the name of webhooks[${twin}]`)
    return { ...one, name }
  })
}

export const health = z
  .strictObject({
    webhooks: z
      .array(webhook)
      .max(16)
      .default([])
      .transform(named)
      .describe('Receivers of a notice when an incident begins, when it lasts long, and when it ends.'),
    escalateAfter: duration({ min: 1_000 })
      .default(15 * 60_000)
      .describe('How long an incident may be open before all webhooks get a notice.'),
  })
  .prefault({})
  .describe('Incidents of servers, and the webhooks for notices.')

export type HealthConfig = z.output<typeof health>
export type WebhookConfig = HealthConfig['webhooks'][number]
