import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'

/** Most files of a folder read as plans. */
const MAX_FILES = 200

/** A file as read: its spec as written and parsed, or the problems. */
export type ReadPlan =
  | {
      readonly ok: true
      readonly name: string
      readonly title: string | undefined
      readonly text: string
      readonly written: unknown
    }
  | { readonly ok: false; readonly name: string; readonly problems: readonly string[] }

/** The folder of plans cannot be read: its owner removed the folder, or forbids reading. */
export class UnreadableFolder extends Error {}

/** The experiments in the folder `gateway.controlMcp.plans`. A changed file is read anew for the next question. */
export class PlanLibrary {
  readonly #folder: string | undefined
  readonly #read: (path: string) => Promise<ReadPlan>
  /** Files as read before, by path: parsing takes milliseconds, and agents ask often. */
  readonly #kept = new Map<string, { readonly mark: string; readonly plan: ReadPlan }>()

  constructor(folder: string | undefined, read: (path: string) => Promise<ReadPlan>) {
    this.#folder = folder
    this.#read = read
  }

  /** Returns all plans by name. Empty without a folder; rejects with `UnreadableFolder`. */
  async list(): Promise<readonly ReadPlan[]> {
    const folder = this.#folder
    if (folder === undefined) return []
    const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
      throw new UnreadableFolder(`the folder of gateway.controlMcp.plans cannot be read (${error.code})`)
    })
    const paths = names
      .filter((file) => /\.(yaml|yml|json)$/.test(file))
      .sort()
      .slice(0, MAX_FILES)
      .map((file) => join(folder, file))
    for (const path of this.#kept.keys()) if (!paths.includes(path)) this.#kept.delete(path)
    const plans: ReadPlan[] = []
    for (const path of paths) plans.push(await this.#planOf(path))
    return plans
  }

  async #planOf(path: string): Promise<ReadPlan> {
    const mark = await markOf(path)
    const kept = this.#kept.get(path)
    if (mark !== undefined && kept?.mark === mark) return kept.plan
    const plan = await this.#read(path)
    // A workload may stand in another file, whose changes the mark does not show.
    if (mark !== undefined && !JSON.stringify(plan).includes('workload')) this.#kept.set(path, { mark, plan })
    else this.#kept.delete(path)
    return plan
  }

  async find(name: string): Promise<ReadPlan | undefined> {
    return (await this.list()).find((plan) => plan.name === name)
  }
}

/** Returns a text that differs after each change of a file; undefined for a file that cannot be looked at. */
const markOf = (path: string): Promise<string | undefined> =>
  stat(path, { bigint: true }).then(
    ({ ino, size, mtimeNs, ctimeNs }) => [ino, size, mtimeNs, ctimeNs].join(' '),
    () => undefined,
  )
