import { z } from 'zod'
import { duration } from '../../units/duration.ts'
import { globPattern as glob } from '../../units/glob-schema.ts'

/** Glob over the value of a header. Header values contain spaces and brackets, and may be secret keys. */
export const headerGlob = z
  .string()
  .max(1_024)
  .regex(/^[\x20-\x7e]+$/, 'expected printable ASCII, in which * is any text and ? any character')

const word = z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ . -')

const headerName = z
  .string()
  .regex(/^[a-z0-9!#$%&'*+.^_`|~-]+$/, 'expected the name of a header, in lower case')

const match = z
  .strictObject({
    server: glob.optional().describe('Glob over server names.'),
    tool: glob.optional().describe('Glob over tool names, as their server knows them.'),
    method: glob.optional().describe('Glob over the JSON-RPC methods that the type can hit.'),
    tenant: glob.optional().describe('Glob over tenants.'),
    arm: glob
      .optional()
      .describe(
        'Glob over arms of experiments: `treatment`, or `canary/treatment` for an arm of one experiment.',
      ),
    header: z
      .record(headerName, headerGlob)
      .optional()
      .describe('Headers of the request, by name in lower case: each must be present and match its glob.'),
    tasks: z
      .number()
      .min(0)
      .max(1)
      .optional()
      .describe(
        'Share of the tasks (intents, or else sessions), in [0, 1]: all calls of a drawn task can be hit, and no calls of other tasks.',
      ),
  })
  .refine((set) => Object.values(set).some((held) => held !== undefined), {
    error:
      'has no criterion: give a server, tool, method, tenant, arm, header or share of tasks, or leave out the key',
  })

const window = z
  .strictObject({
    from: duration().default(0).describe('Start, as time after the fault was armed.'),
    to: duration({ min: 1 }).optional().describe('End, as time after the fault was armed. Default: never.'),
  })
  .refine(({ from, to }) => to === undefined || to > from, {
    error: 'expected later than "from"',
    path: ['to'],
  })

const burst = z.strictObject({
  meanLength: z.number().min(1).max(100_000).describe('Mean length of a burst, in steps.'),
  per: z
    .enum(['slot', 'call', 'intent'])
    .default('slot')
    .describe(
      'The step: a slot of time; a call, counted within its task (its intent, or else its session); or an intent, with all of its calls hit or none. Intents whose names differ only in the final number are steps of the same chain; calls without an intent use slots.',
    ),
  slot: duration({ min: 10 }).default(1_000).describe('Length of a slot of time.'),
})

const ramp = z.strictObject({
  from: z.number().min(0).max(1).default(0).describe('The rate when the fault is armed, in [0, 1].'),
  over: duration({ min: 1 }).describe('Time of the linear change to `rate`.'),
})

const when = z.strictObject({
  onCall: z.int().min(1).optional().describe('Only the matching call with this number, from 1.'),
  afterCalls: z.int().min(0).optional().describe('Only after this many matching calls.'),
  everyNth: z.int().min(1).optional().describe('Only every n-th matching call.'),
  window: window.optional().describe('Only in a span of time.'),
  burst: burst
    .optional()
    .describe('Hits come in bursts, in which all calls are hit; the mean rate over time stays `rate`.'),
  ramp: ramp.optional().describe('With a rate that rises or falls after arming; not together with bursts.'),
})

/** The fields of all faults, whatever their type; `type` and `side` depend on the type. */
export const common = {
  name: word
    .describe('Unique; shows up in metrics, spans and the journal, and decides the draws.')
    .meta({ id: 'FaultName' }),
  rate: z
    .number()
    .min(0)
    .max(1)
    .describe('Share of the matching calls to hit, in [0, 1].')
    .meta({ id: 'FaultRate' }),
  match: match
    .meta({ id: 'FaultMatch' })
    .optional()
    .describe('The targets: all of these must match. Default: all calls.'),
  when: when
    .meta({ id: 'FaultWhen' })
    .optional()
    .describe(
      'Restricts the matching calls further; `onCall`, `afterCalls` and `everyNth` count by arrival.',
    ),
  maxInjections: z
    .int()
    .min(1)
    .optional()
    .describe(
      'Maximum number of injections until the fault is armed again; counted per arm of an experiment.',
    )
    .meta({ id: 'FaultMaxInjections' }),
  maxConcurrent: z
    .int()
    .min(1)
    .max(10_000)
    .default(16)
    .describe('Maximum number of calls held at a time; counted per arm of an experiment.')
    .meta({ id: 'FaultMaxConcurrent' }),
  ttl: duration({ min: 1 })
    .describe('Time the fault stays armed, at most `maxTtl`.')
    .meta({ id: 'FaultTtl' }),
  allowWrites: z
    .boolean()
    .default(false)
    .describe('Whether the fault may hit tools not known to be read-only.')
    .meta({ id: 'FaultAllowWrites' }),
  sticky: z
    .boolean()
    .default(false)
    .describe('Whether a retry meets the same fate as the first attempt.')
    .meta({ id: 'FaultSticky' }),
  domain: word.optional().describe('Faults of one failure domain hit together.').meta({ id: 'FaultDomain' }),
} as const

/** A fault of a plan; the fields of its type are beside the common fields. */
export type Fault = z.output<z.ZodObject<typeof common>> & {
  readonly type: string
  readonly side: 'upstream' | 'client'
  readonly [own: string]: unknown
}
