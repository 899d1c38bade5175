import { z } from 'zod'
import { contract, type KindContract } from '../judge/contract.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { readBy, type Step, type TaskKind, type Workload, workload } from './workload.ts'

/** The kinds of tasks of a file without a workload. */
const kinds = z.strictObject({
  kinds: z
    .array(
      z.strictObject({
        tools: z
          .array(z.string().min(1).max(513))
          .min(1)
          .max(1_000)
          .describe('All tools that a task of the kind may call.'),
        contract,
      }),
    )
    .min(1)
    .max(100),
})

/** The contracts of a file, or the problems of the file, a line each. */
export type ReadContracts =
  | { readonly ok: true; readonly kinds: readonly KindContract[] }
  | { readonly ok: false; readonly problems: readonly string[] }

/** Reads contracts from a YAML or JSON file: a workload, a list `kinds`, or a single contract of all tasks. */
export async function readContracts(file: string): Promise<ReadContracts> {
  let form: 'workload' | 'kinds' | 'contract' = 'contract'
  const read = await readBy<unknown>(file, (held) => {
    if (isObject(held) && 'tasks' in held) form = 'workload'
    else if (isObject(held) && 'kinds' in held) form = 'kinds'
    return schemas[form]
  })
  return read.ok ? { ok: true, kinds: kindsOf(form, read.value) } : read
}

const schemas = { workload, kinds, contract } as const

function kindsOf(form: keyof typeof schemas, value: unknown): readonly KindContract[] {
  switch (form) {
    case 'workload':
      return (value as Workload).tasks.map(({ steps, contract }: TaskKind) => ({
        tools: steps.map(nameOf),
        contract,
      }))
    case 'kinds':
      return (value as z.output<typeof kinds>).kinds
    case 'contract':
      return [{ tools: undefined, contract: value as z.output<typeof contract> }]
  }
}

const nameOf = ({ server, tool }: Step) => (server === undefined ? tool : `${server}/${tool}`)
