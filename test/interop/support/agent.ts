/** How a client answers what servers ask of it; it agrees to open any URL. */
export interface Answers {
  /** What is typed into forms. */
  readonly form?: Readonly<Record<string, string>>
  readonly model?: string
  readonly roots?: readonly string[]
}

/** Options of one call. */
export interface CallOptions {
  readonly onprogress?: (progress: number) => void
  readonly signal?: AbortSignal
}

/** What the tests look at in a tool's result. */
export interface ToolResult {
  readonly text: string
  readonly structured: unknown
}

/** What a client tells of lists and resources that changed. */
export type Told = 'tools' | `resource ${string}`

/** A tool as a client lists it. */
export interface ListedTool {
  readonly name: string
  readonly outputSchema: unknown
}

/** One client of an SDK, connected; the same for all SDKs and eras. */
export interface Agent {
  readonly version: string | undefined
  /** What changed so far. */
  readonly told: readonly Told[]
  tools(): Promise<readonly ListedTool[]>
  call(name: string, args?: Readonly<Record<string, unknown>>, options?: CallOptions): Promise<ToolResult>
  prompts(): Promise<readonly string[]>
  /** The text of a prompt's first message. */
  prompt(name: string): Promise<string>
  resources(): Promise<readonly string[]>
  /** The text of a resource. */
  read(uri: string): Promise<string>
  /** Asks to be told of changes to the list of tools, and to resources. Returns how to end that. */
  watch(uris: readonly string[]): Promise<() => Promise<void>>
  close(): Promise<void>
}

export interface AgentKind {
  readonly title: string
  readonly era: 'legacy' | 'modern'
  /** The versions of the protocol that it may end up with behind the gateway. */
  readonly version: string
  connect(url: string, answers?: Answers): Promise<Agent>
}

/** The capabilities that follow from what a client answers. */
export const capabilitiesOf = ({ form, model, roots }: Answers) => ({
  ...(form === undefined ? {} : { elicitation: { form: {}, url: {} } }),
  ...(model === undefined ? {} : { sampling: {} }),
  ...(roots === undefined ? {} : { roots: {} }),
})

/** The text of the first of a result's content blocks. */
export function firstText(content: unknown): string {
  const [block] = content as readonly { readonly text?: string }[]
  return block?.text ?? ''
}
