import { readdir } from 'node:fs/promises'
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

/** The experiments in the folder `gateway.controlMcp.plans`. Read anew for each question. */
export class PlanLibrary {
  readonly #folder: string | undefined
  readonly #read: (path: string) => Promise<ReadPlan>

  constructor(folder: string | undefined, read: (path: string) => Promise<ReadPlan>) {
    this.#folder = folder
    this.#read = read
  }

  /** Returns all plans by name. Empty without a folder; rejects when the folder cannot be read. */
  async list(): Promise<readonly ReadPlan[]> {
    const folder = this.#folder
    if (folder === undefined) return []
    const files = (await readdir(folder)).filter((file) => /\.(yaml|yml|json)$/.test(file)).sort()
    const plans: ReadPlan[] = []
    for (const file of files.slice(0, MAX_FILES)) plans.push(await this.#read(join(folder, file)))
    return plans
  }

  async find(name: string): Promise<ReadPlan | undefined> {
    return (await this.list()).find((plan) => plan.name === name)
  }
}
