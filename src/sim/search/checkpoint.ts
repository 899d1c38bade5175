import { open, readFile, rename, rm } from 'node:fs/promises'
import { z } from 'zod'
import { LEAST_RATE, MOST_FAULTS, typeNames } from './plan-space.ts'
import type { Standstill } from './search.ts'

/** Version of the format; other versions are rejected. */
const VERSION = 1

/**
 * Options of a search. A checkpoint can be continued only with the same options. Values are texts and numbers, so
 * messages can show differences.
 */
export type SearchOptions = Readonly<Record<string, string | number>>

/** A search between two generations. */
export interface Checkpoint extends Standstill {
  readonly options: SearchOptions
}

/** Thrown when a checkpoint is unusable. The message gives the reason. */
export class CheckpointError extends Error {}

/** Replaces the checkpoint atomically: after a crash either the old or the new checkpoint exists. */
export async function writeCheckpoint(path: string, checkpoint: Checkpoint): Promise<void> {
  const draft = `${path}.new`
  try {
    const file = await open(draft, 'w')
    try {
      await file.writeFile(`${JSON.stringify({ version: VERSION, ...checkpoint })}\n`)
      await file.datasync()
    } finally {
      await file.close()
    }
    await rename(draft, path)
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined)
    throw new CheckpointError(`cannot write ${path}: ${(error as Error).message}`)
  }
}

const gene = z.strictObject({
  type: z.enum(typeNames),
  match: z.strictObject({ server: z.string().optional(), tool: z.string().optional() }),
  rate: z.number().min(LEAST_RATE).max(1),
  when: z.strictObject({
    burst: z.strictObject({ meanLength: z.number(), per: z.enum(['slot', 'call']) }).optional(),
    window: z.strictObject({ from: z.number(), to: z.number() }).optional(),
  }),
  options: z.record(z.string(), z.unknown()),
})

const genome = z.array(gene).min(1).max(MOST_FAULTS)

const evaluation = z.discriminatedUnion('status', [
  z.strictObject({ status: z.literal('invalid'), why: z.string() }),
  z.strictObject({ status: z.enum(['inapplicable', 'unreachable']) }),
  z.strictObject({
    status: z.literal('measured'),
    values: z.array(z.number()).min(1),
    mean: z.number(),
    standardError: z.number(),
    excess: z.number(),
    standing: z.enum(['within', 'uncertain', 'violating', 'outage']),
  }),
])

const schema = z.strictObject({
  version: z.literal(VERSION),
  options: z.record(z.string(), z.union([z.string(), z.number()])),
  state: z.strictObject({ generation: z.int().min(0), population: z.array(genome).min(1) }),
  known: z.array(z.strictObject({ genome, evaluation })),
  hits: z.int().min(0),
})

/** Reads the checkpoint of a search with these options. Rejects with a `CheckpointError` and its reason. */
export async function readCheckpoint(path: string, options: SearchOptions): Promise<Checkpoint> {
  const text = await readFile(path, 'utf8').catch((error: Error) => {
    throw new CheckpointError(`cannot read ${path}: ${error.message}`)
  })
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new CheckpointError(`${path} is no checkpoint, or incomplete: it is not valid JSON`)
  }
  const { version } = z.object({ version: z.unknown() }).catch({ version: undefined }).parse(value)
  if (typeof version === 'number' && version !== VERSION)
    throw new CheckpointError(
      `${path} is a checkpoint of version ${version}; this program reads version ${VERSION}`,
    )
  const read = schema.safeParse(value)
  if (!read.success) {
    const [{ path: place = [], message = '' } = {}] = read.error.issues
    throw new CheckpointError(`${path} is no checkpoint of a search: ${place.join('.')} ${message}`)
  }
  const others = [...new Set([...Object.keys(options), ...Object.keys(read.data.options)])].filter(
    (name) => options[name] !== read.data.options[name],
  )
  if (others.length > 0) {
    const differences = others.map((name) => `${name} was ${read.data.options[name]}, now ${options[name]}`)
    throw new CheckpointError(`${path} is of a search with other options: ${differences.join('; ')}`)
  }
  const { length } = read.data.state.population
  if (length !== options.population)
    throw new CheckpointError(
      `${path} is no checkpoint of a search: it holds ${length} plans instead of ${options.population} for a generation`,
    )
  return read.data as Checkpoint
}
