/** A client's answers to questions of servers; the client agrees to open any URL. */
export interface Answers {
  readonly form?: Readonly<Record<string, string>>
  readonly model?: string
  readonly roots?: readonly string[]
}

export interface CallOptions {
  readonly onprogress?: (progress: number) => void
  readonly signal?: AbortSignal
}

/** The parts of a tool's result the tests compare. */
export interface ToolResult {
  readonly text: string
  readonly structured: unknown
}

/** A change a client was notified of. */
export type Told = 'tools' | `resource ${string}`

export interface ListedTool {
  readonly name: string
  readonly outputSchema: unknown
}

/** A connected client, with one interface for all SDKs and eras. */
export interface Agent {
  readonly version: string | undefined
  readonly told: readonly Told[]
  tools(): Promise<readonly ListedTool[]>
  call(name: string, args?: Readonly<Record<string, unknown>>, options?: CallOptions): Promise<ToolResult>
  prompts(): Promise<readonly string[]>
  /** Returns the text of a prompt's first message. */
  prompt(name: string): Promise<string>
  resources(): Promise<readonly string[]>
  read(uri: string): Promise<string>
  /** Subscribes to changes of the tools and of resources. Returns a function to unsubscribe. */
  watch(uris: readonly string[]): Promise<() => Promise<void>>
  close(): Promise<void>
}

export interface AgentKind {
  readonly title: string
  readonly era: 'legacy' | 'modern'
  /** The protocol version the client negotiates with the gateway. */
  readonly version: string
  connect(url: string, answers?: Answers): Promise<Agent>
}

/** Returns the capabilities implied by a client's answers. */
export const capabilitiesOf = ({ form, model, roots }: Answers) => ({
  ...(form === undefined ? {} : { elicitation: { form: {}, url: {} } }),
  ...(model === undefined ? {} : { sampling: {} }),
  ...(roots === undefined ? {} : { roots: {} }),
})

export function firstText(content: unknown): string {
  const [block] = content as readonly { readonly text?: string }[]
  return block?.text ?? ''
}
