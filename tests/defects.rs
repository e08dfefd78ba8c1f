//! The verdict on each defect that was found by running, attacking and learning the program:
//! mended, decided otherwise or left, with the tests that show it. Prints the table, and fails if
//! a row is missing, or if a test that it names does not run; so with what README says is absent.

#[path = "rig/tree.rs"]
mod tree;

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::OnceLock;

use Verdict::{Left, Mended, Otherwise};
use proc_macro2::TokenTree;
use quote::ToTokens;
use syn::visit::{self, Visit};
use tree::{every_file, top};

/// What became of a row.
enum Verdict {
    /// Each claim of it is true, as these tests show.
    Mended(&'static [&'static str]),
    /// It was decided otherwise, and why; with the tests of what was decided.
    Otherwise(&'static str, &'static [&'static str]),
    /// This of it is not mended or has no test; with the tests of the rest.
    Left(&'static str, &'static [&'static str]),
}

impl Verdict {
    fn name(&self) -> &'static str {
        match self {
            Mended(_) => "mended",
            Otherwise(..) => "decided otherwise",
            Left(..) => "left",
        }
    }

    fn why(&self) -> Option<&'static str> {
        match self {
            Mended(_) => None,
            Otherwise(why, _) | Left(why, _) => Some(why),
        }
    }

    fn tests(&self) -> &'static [&'static str] {
        match self {
            Mended(tests) | Otherwise(_, tests) | Left(_, tests) => tests,
        }
    }
}

/// The kinds of rows, each with the first and the last of its numbers: where two features meet,
/// what a person is told, services and clients, attacks, and a newcomer's steps.
const KINDS: [(&str, usize, usize); 5] = [
    ("A", 1, 17),
    ("B", 18, 27),
    ("C", 28, 39),
    ("attack", 1, 11),
    ("ease", 1, 19),
];

/// A row's kind and number, what must be true, and the verdict.
type Row = (&'static str, usize, &'static str, Verdict);

const MEETINGS: [Row; 17] = [
    (
        "A",
        1,
        "A secret is revoked under each of its names, however it is lent.",
        Mended(&["a_secret_that_is_revoked_by_any_of_its_names_is_lent_in_no_way_that_runs"]),
    ),
    (
        "A",
        2,
        "A revocation needs no running gateway, takes any name, and says what it hit.",
        Mended(&[
            "a_secret_that_is_revoked_while_nothing_runs_is_lent_in_no_way_that_starts_later",
            "what_nobody_revoked_is_not_restored_and_a_secret_is_no_name",
            "a_key_of_aws_that_is_revoked_while_nothing_runs_signs_nothing_later",
        ]),
    ),
    (
        "A",
        3,
        "The end of a session uses up the session and never the identity of its caller.",
        Mended(&[
            "an_ended_session_is_used_up_and_its_caller_begins_another",
            "a_caller_is_locked_out_if_its_session_is_ended_for_good",
        ]),
    ),
    (
        "A",
        4,
        "A session that an operator makes is known to each gateway of the same state.",
        Mended(&["what_one_gateway_makes_is_known_at_once_to_each_that_has_its_state"]),
    ),
    (
        "A",
        5,
        "A token answer is known by itself, whatever asked for it.",
        Mended(&[
            "a_token_answer_is_known_by_itself",
            "a_token_that_nobody_asked_for_holds_where_its_answer_says",
        ]),
    ),
    (
        "A",
        6,
        "An issuer is asked only if what it answers can be kept.",
        Mended(&[
            "what_an_issuer_gives_is_kept_or_it_is_not_asked",
            "an_issuer_is_asked_only_if_the_row_of_the_state_can_be_written",
        ]),
    ),
    (
        "A",
        7,
        "Each variable of a preset has a phantom of its own value.",
        Mended(&["each_variable_of_a_known_service_stands_for_its_own_value"]),
    ),
    (
        "A",
        8,
        "A kept login opens its host only where the workload can hold its phantom.",
        Mended(&[
            "a_kept_login_that_no_preset_knows_opens_its_host_where_it_is_named_and_a_variable_holds_it",
        ]),
    ),
    (
        "A",
        9,
        "A caller fetches the variables and files of its credentials at its own door.",
        Mended(&[
            "a_caller_fetches_the_file_of_its_login_at_its_own_door",
            "each_door_gives_its_caller_what_clients_need_and_a_stranger_no_phantom",
            "one_line_makes_clients_use_a_session_that_was_made",
            "an_ended_session_is_used_up_and_its_caller_begins_another",
        ]),
    ),
    (
        "A",
        10,
        "A token that no host was named for is for the first allowed host that gets it.",
        Mended(&["a_token_that_is_for_no_host_is_for_the_first_that_gets_it"]),
    ),
    (
        "A",
        11,
        "A new token without an end leaves no old end, and a busy issuer is named with its time.",
        Mended(&[
            "an_end_that_nobody_told_does_not_stay_the_old_one",
            "a_busy_issuer_is_named_to_who_asks",
            "a_busy_issuer_of_one_login_is_not_that_of_another",
        ]),
    ),
    (
        "A",
        12,
        "Temporary credentials outlive a restart; a state that fails is not trusted for ever.",
        Mended(&[
            "temporary_credentials_outlive_a_restart_as_the_session_does_and_fall_with_their_key",
            "a_session_whose_state_fails_while_it_is_renewed_ends_in_time_and_goes_on_with_its_state",
        ]),
    ),
    (
        "A",
        13,
        "An annotation of a policy is read or refused.",
        Mended(&[
            "an_annotation_that_nothing_reads_is_refused",
            "an_annotation_that_nothing_reads_is_refused_where_it_stands",
        ]),
    ),
    (
        "A",
        14,
        "A login that a session made outlives a restart as the session does.",
        Mended(&[
            "a_login_of_a_session_outlives_a_kill_as_the_session_does",
            "temporary_credentials_outlive_a_restart_as_the_session_does_and_fall_with_their_key",
            "a_login_that_ended_is_told_as_ended_after_a_restart_too",
        ]),
    ),
    (
        "A",
        15,
        "A name of a kind of evidence comes from that evidence alone, with claims of their type.",
        Mended(&[
            "a_created_session_has_no_name_that_evidence_alone_gives",
            "a_jwt_is_its_user_and_groups_at_each_door_and_a_doubtful_one_is_nobodys",
        ]),
    ),
    (
        "A",
        16,
        "No evidence that a gateway takes stands in a record, wherever a client put it.",
        Mended(&[
            "no_evidence_stands_in_a_record_wherever_a_client_put_it",
            "a_phantom_that_lost_its_letter_case_stands_in_no_record_of_who_is_refused",
        ]),
    ),
    (
        "A",
        17,
        "Readiness names the setting to look at; methods, literals and files are told and kept.",
        Mended(&[
            "keys_are_fetched_where_an_issuer_publishes_them_and_nobody_is_served_without",
            "no_route_answers_with_a_secret_or_a_phantom_or_a_status_that_is_not_documented",
            "a_workload_sees_its_own_session_and_nothing_else",
            "how_far_an_export_came_is_synchronised_with_the_disk_or_told",
        ]),
    ),
];

const TOLD: [Row; 10] = [
    (
        "B",
        18,
        "What README, the help and the benchmarks say is so.",
        Left(
            "no test reads the doors in the help of `serve`, nor the day of the benchmarks",
            &["each_thing_that_the_readme_says_is_absent_has_its_row"],
        ),
    ),
    (
        "B",
        19,
        "An endpoint whose protocol is read is refused in that protocol.",
        Mended(&[
            "a_refused_call_is_answered_in_json_rpc",
            "a_message_that_may_not_go_on_ends_its_websocket",
            "each_ref_is_refused_with_the_reason_and_the_message_beside_it",
            "git_pushes_more_than_is_held_and_shows_what_was_refused",
        ]),
    ),
    (
        "B",
        20,
        "The record of a stolen phantom has credential and place as keys.",
        Mended(&[
            "the_record_of_a_stolen_phantom_says_which_it_is_and_where_it_was",
            "a_phantom_goes_only_to_the_hosts_of_its_credential",
            "foreign_credentials_do_not_reach_a_managed_host",
        ]),
    ),
    (
        "B",
        21,
        "A real credential in a file that git or a package manager reads is named.",
        Otherwise(
            "the start names file and key, and a refusal points to such files; to compare bytes, the \
             gateway would hold secrets that nobody lent it",
            &[
                "what_git_and_package_managers_read_in_the_project_is_named_where_it_holds_a_credential",
                "foreign_credentials_do_not_reach_a_managed_host",
                "the_page_of_refusals_is_the_table",
            ],
        ),
    ),
    (
        "B",
        22,
        "For a variable that looks secret the summary offers a phantom, and not the real value.",
        Mended(&[
            "the_short_line_of_the_summary_says_no_more_than_there_is_and_what_is_missing_each_time",
            "the_variables_of_agents_and_of_bedrock_are_lent_as_phantoms_by_their_own_presets",
        ]),
    ),
    (
        "B",
        23,
        "A value of which only a part is secret is not replaced as a whole.",
        Otherwise(
            "blanks in an application password are for reading: services take it without, as is told",
            &["a_value_of_which_a_part_is_secret_is_not_lent_as_a_whole"],
        ),
    ),
    (
        "B",
        24,
        "A phantom is hard to guess also for a short secret, and follows the secret's shape.",
        Mended(&[
            "a_short_secret_has_a_phantom_of_any_letters_and_a_bots_mark_stays",
            "a_kept_shape_stays_until_its_prefix_or_its_strength_is_another",
        ]),
    ),
    (
        "B",
        25,
        "An agent's own sandbox, a pinned CA and a redirect with a credential are told by name.",
        Mended(&[
            "an_agents_own_sandbox_is_told_by_its_name",
            "every_refusal_is_told_where_it_is_met",
            "the_page_of_refusals_is_the_table",
        ]),
    ),
    (
        "B",
        26,
        "The advice of a refusal fits the port, the address and the door.",
        Mended(&[
            "every_refusal_is_told_where_it_is_met",
            "a_next_step_names_the_host_and_the_port_where_it_has_one",
            "each_door_gives_its_caller_what_clients_need_and_a_stranger_no_phantom",
            "a_folder_without_a_repository_has_nothing_of_ours_afterwards",
        ]),
    ),
    (
        "B",
        27,
        "Java trusts the session without a variable that it prints on each start.",
        Mended(&[
            "curl_node_and_java_trust_the_session",
            "variables_that_carry_secrets_are_dropped_and_phantoms_set",
        ]),
    ),
];

const SERVICES: [Row; 12] = [
    (
        "C",
        28,
        "A slash that a service's own library escapes is data.",
        Mended(&["a_slash_that_a_services_own_library_escapes_is_data"]),
    ),
    (
        "C",
        29,
        "Each host that a preset or profile allows is bound, or says why not.",
        Mended(&["each_host_that_a_preset_or_profile_allows_or_reads_is_bound_or_says_why_not"]),
    ),
    (
        "C",
        30,
        "A client with roots in its own package works, or it is said where it is named.",
        Otherwise(
            "packages are not changed; refusal, page and example say which setting such a client has",
            &["the_page_of_refusals_is_the_table"],
        ),
    ),
    (
        "C",
        31,
        "A connection on which a client logs in is that client's alone.",
        Mended(&["a_connection_on_which_a_client_logs_in_is_that_clients_alone"]),
    ),
    (
        "C",
        32,
        "Content that ends with its connection is whole, and what was read goes on.",
        Mended(&[
            "content_that_ends_with_a_connection_whose_tls_is_not_closed_is_whole",
            "what_came_before_an_answer_broke_off_is_passed_on",
        ]),
    ),
    (
        "C",
        33,
        "Folded lines, blanks before a colon and a length said twice are read as proxies should.",
        Mended(&[
            "a_folded_line_a_blank_before_a_colon_and_a_length_said_twice_are_mended",
            "a_refusal_names_the_line_of_an_answer_that_could_not_be_read",
            "the_line_of_a_head_that_cannot_be_read_is_found",
        ]),
    ),
    (
        "C",
        34,
        "A range is asked for with a margin in which a secret would be found.",
        Mended(&[
            "a_resumed_download_has_its_bytes_and_no_secret_across_its_border",
            "an_answer_with_other_bytes_than_were_asked_for_is_refused",
            "one_range_is_asked_for_with_its_margin",
        ]),
    ),
    (
        "C",
        35,
        "A folder that was a repository never becomes a silent part of its parent's.",
        Mended(&["a_folder_whose_repository_was_put_away_is_no_part_of_the_one_above"]),
    ),
    (
        "C",
        36,
        "A persisted query is compared with its text; a path's case is told at the rule.",
        Mended(&[
            "every_operation_of_every_member_counts",
            "policy_check_tells_at_a_rule_what_servers_make_of_the_case_of_its_path",
        ]),
    ),
    (
        "C",
        37,
        "What is no GraphQL is not sent, and odd ends and places are told.",
        Mended(&[
            "what_reads_in_two_ways_gives_nothing",
            "a_mutation_is_found_behind_aliases_fragments_and_batches",
            "names_of_no_coding_and_padding_after_gzip_are_no_fault",
            "what_is_no_place_is_refused",
        ]),
    ),
    (
        "C",
        38,
        "A clone that an earlier run made can be removed inside.",
        Otherwise(
            "what a nested repository holds is guarded from the start of a run, so that git outside \
             runs nothing of a command's; it is removed outside",
            &["what_an_earlier_command_made_is_guarded_in_a_later_run"],
        ),
    ),
    (
        "C",
        39,
        "A guest without IP, and a sandbox that forwards to a URL, have a door or are told.",
        Mended(&["there_is_no_door_by_vsock_nor_one_to_which_a_sandbox_forwards"]),
    ),
];

const ATTACKS: [Row; 11] = [
    (
        "attack",
        1,
        "What a session holds or does never delays an operator's change, nor a rule's end.",
        Mended(&[
            "a_hostile_login_keeps_no_change_from_coming_into_force",
            "a_grant_ends_by_the_clock_while_every_reload_is_refused",
            "a_login_whose_issuer_is_silent_keeps_no_gateway_from_starting",
        ]),
    ),
    (
        "attack",
        2,
        "What is searched for on behalf of a session has one bound.",
        Mended(&["a_login_that_is_too_long_to_search_for_is_withheld"]),
    ),
    (
        "attack",
        3,
        "What a preset lends makes no lasting credentials, however it is lent.",
        Mended(&[
            "no_flag_lends_what_makes_lasting_credentials",
            "no_file_lends_what_makes_lasting_credentials_also_at_a_host_of_ones_own",
            "no_profile_secret_or_login_lends_what_makes_lasting_credentials_but_to_a_group",
            "no_mutation_and_no_api_below_another_path_makes_lasting_credentials",
            "a_services_own_other_spellings_make_no_lasting_credentials_and_what_is_beside_them_passes",
        ]),
    ),
    (
        "attack",
        4,
        "What a common reader takes for a request with a grant is one.",
        Mended(&[
            "what_a_common_reader_takes_for_a_request_for_tokens_is_one",
            "a_token_answer_is_known_by_itself",
        ]),
    ),
    (
        "attack",
        5,
        "A token answer is one with any status.",
        Mended(&["tokens_of_any_status_and_in_any_spelling_are_mapped"]),
    ),
    (
        "attack",
        6,
        "One login that fails decides about no other.",
        Mended(&["a_hostile_login_keeps_no_change_from_coming_into_force"]),
    ),
    (
        "attack",
        7,
        "A login changes no request of another session.",
        Mended(&["a_login_changes_no_other_sessions_requests"]),
    ),
    (
        "attack",
        8,
        "Tokens are compared decoded, however a server escapes them.",
        Mended(&["tokens_of_any_status_and_in_any_spelling_are_mapped"]),
    ),
    (
        "attack",
        9,
        "The user's own settings of git are read-only where they lie in the project.",
        Mended(&["no_way_of_settings_hooks_or_repositories_runs_anything"]),
    ),
    (
        "attack",
        10,
        "Why a login is of no use is said once, by its name.",
        Mended(&["why_a_login_is_of_no_use_is_said_once_for_each_login_and_cause"]),
    ),
    (
        "attack",
        11,
        "What was read is searched for from the reading on, though it was never lent.",
        Mended(&["a_program_is_logged_in_by_its_file_alone_with_phantoms"]),
    ),
];

const EASE: [Row; 19] = [
    (
        "ease",
        1,
        "An agent that is logged in outside is ready inside, in each project, from the first run on.",
        Left(
            "of seven agents one shows its own screen in a terminal: Claude Code; Codex and Gemini CLI \
             have none of theirs tried, and the others are not there to try",
            &[
                "an_agent_that_is_logged_in_outside_is_ready_inside_in_every_project_from_the_first_run_on",
                "a_real_agent_that_is_logged_in_outside_shows_its_ready_screen_in_a_terminal_in_two_projects",
            ],
        ),
    ),
    (
        "ease",
        2,
        "What a person names on the command line is permitted, and a consent names what stops.",
        Mended(&[
            "flags_and_a_profile_permit_what_they_name_whatever_rules_permit",
            "a_consent_names_what_stops_and_a_login_that_a_rule_lends",
            "policies_decide_about_the_hosts_of_a_files_presets_and_a_flag_permits_them",
        ]),
    ),
    (
        "ease",
        3,
        "Examples end well as their README writes them, with one question for all files.",
        Left(
            "the sixth example, with Vault, is not typed by the test",
            &[
                "the_readmes_of_examples_end_well_with_one_question_for_all_files_of_a_configuration",
            ],
        ),
    ),
    (
        "ease",
        4,
        "A client's renewal after its service refused the token is a real one, once.",
        Mended(&[
            "a_token_that_its_service_refused_is_renewed_when_its_client_asks",
            "a_token_that_its_service_refused_is_replaced_once_and_by_who_asks_for_that_alone",
        ]),
    ),
    (
        "ease",
        5,
        "Each id of a refused login is found, and others are counted by address and cause.",
        Mended(&[
            "ten_thousand_wrong_logins_are_counted_by_address_and_each_id_is_found_in_a_bounded_log",
        ]),
    ),
    (
        "ease",
        6,
        "A phantom shows the account of its login, and one that cannot be read is said.",
        Mended(&[
            "a_phantom_shows_the_account_that_its_login_has_and_is_the_same_until_that_changes",
        ]),
    ),
    (
        "ease",
        7,
        "The user stands beside the session wherever that is shown, and a rule may be the user's.",
        Mended(&[
            "the_user_stands_beside_the_session_wherever_that_is_shown_and_a_rule_may_be_the_users",
        ]),
    ),
    (
        "ease",
        8,
        "At each door one line makes clients work.",
        Mended(&[
            "each_door_gives_its_caller_what_clients_need_and_a_stranger_no_phantom",
            "one_line_makes_clients_use_a_session_that_was_made",
            "the_command_of_a_sidecar_has_the_ca_and_phantoms_of_its_caller",
            "a_captured_workload_is_shown_its_phantoms",
        ]),
    ),
    (
        "ease",
        9,
        "A short line says no more than there is, and what is missing is said each time.",
        Mended(&[
            "the_short_line_of_the_summary_says_no_more_than_there_is_and_what_is_missing_each_time",
        ]),
    ),
    (
        "ease",
        10,
        "A refusal's next step comes from one source, and works.",
        Mended(&[
            "every_refusal_is_told_where_it_is_met",
            "the_command_that_a_refusal_names_makes_the_next_request_work",
            "the_short_line_of_the_summary_says_no_more_than_there_is_and_what_is_missing_each_time",
            "an_origin_without_a_good_certificate_gets_no_secret",
        ]),
    ),
    (
        "ease",
        11,
        "A company's CA in the shell is named, with the lines that trust it.",
        Mended(&[
            "a_companys_ca_that_the_shell_names_is_told_with_the_lines_that_use_it",
            "a_company_is_reached_by_its_proxy_and_its_own_roots_as_the_users_own_file_says",
        ]),
    ),
    (
        "ease",
        12,
        "Commands are broken between words, and a refusal shows no paths of the state.",
        Mended(&[
            "a_text_is_broken_between_words_and_never_in_one",
            "a_refusal_does_not_say_where_the_gateway_keeps_its_state",
            "every_refusal_is_told_where_it_is_met",
        ]),
    ),
    (
        "ease",
        13,
        "A name in a policy exists, and a value that a fact cannot have is an error.",
        Mended(&[
            "a_form_that_no_request_has_is_at_fault_and_its_neighbour_is_not",
            "what_never_matches_is_refused",
            "policy_check_tells_names_that_the_configuration_lacks_and_refuses_values_that_no_fact_has",
        ]),
    ),
    (
        "ease",
        14,
        "Decision files have no wire formats, and a request that was not made can be asked about.",
        Mended(&[
            "decision_files_say_what_a_request_does_without_wire_formats",
            "a_request_that_was_not_made_is_asked_about",
            "shipped_policies_decide_as_their_decision_files_say",
        ]),
    ),
    (
        "ease",
        15,
        "What the gateway could not do is told as one line for people.",
        Mended(&[
            "what_the_gateway_itself_could_not_do_is_told_beside_a_command_as_a_line_like_all_others",
            "each_kind_of_refusal_is_one_line_of_serve_and_repeats_are_counted",
            "a_secret_that_cannot_be_read_is_told_once_and_by_its_place",
        ]),
    ),
    (
        "ease",
        16,
        "What a command may create it may delete.",
        Otherwise(
            "what a nested repository holds is guarded from the start of a run, so that git outside \
             runs nothing of a command's; it is removed outside",
            &["what_an_earlier_command_made_is_guarded_in_a_later_run"],
        ),
    ),
    (
        "ease",
        17,
        "Small things of commands: names, questions, messages, `sidecar check`, the install.",
        Left(
            "no binary can be fetched, and how long `cargo install` takes is measured by no test",
            &[
                "presets_are_listed_and_told_one_by_one",
                "the_short_line_of_the_summary_says_no_more_than_there_is_and_what_is_missing_each_time",
                "known_secrets_are_lent_once_a_person_said_so_and_aws_by_a_word_of_its_own",
                "a_session_sees_its_own_latest_refusals_alone",
                "each_command_stands_in_one_group_of_the_help_and_on_one_line",
            ],
        ),
    ),
    (
        "ease",
        18,
        "One can leave, check all of a configuration, and is told the next step.",
        Mended(&[
            "a_workload_whose_login_is_gone_is_told_how_its_user_logs_in_again",
            "doctor_looks_at_what_each_listener_of_a_configuration_needs",
            "serve_runs_by_flags_alone_and_warns_of_nothing_that_is_not_so",
        ]),
    ),
    (
        "ease",
        19,
        "The documents lead from the first hour to what a leaked key needs.",
        Left("no test reads the order of the documents", &[]),
    ),
];

/// Words of each sentence under README's "What it does not do", and the tests that show it, or why
/// there is nothing to try.
const ABSENT: [(&str, Verdict); 11] = [
    (
        "Of content, JSON, forms",
        Mended(&[
            "content_is_read_by_its_one_declared_type",
            "content_that_reads_two_ways_is_not_judged",
        ]),
    ),
    (
        "A budget counts in one gateway",
        Otherwise(
            "no key names another place for it",
            &["every_key_is_read_and_a_value_of_another_type_is_refused"],
        ),
    ),
    (
        "HTTP/3 is refused",
        Mended(&["other_udp_is_refused_at_once", "no_datagram_leaves"]),
    ),
    (
        "Other TCP to other hosts",
        Mended(&[
            "protocols_that_are_not_carried_are_refused_at_once_and_recorded",
            "redis_cli_at_a_name_is_refused_at_once_with_the_reason",
        ]),
    ),
    (
        "No state is shared between machines",
        Otherwise("one machine cannot try it", &[]),
    ),
    (
        "No listener is a vsock",
        Mended(&["there_is_no_door_by_vsock_nor_one_to_which_a_sandbox_forwards"]),
    ),
    (
        "Bytes through `--host-port` and `--publish`",
        Mended(&[
            "a_database_of_the_host_is_used_by_one_grant_and_nothing_else_of_the_host_is_reached",
        ]),
    ),
    (
        "Process memory in the sandbox has no bound",
        Otherwise(
            "a test would take the machine's memory",
            &["files_in_memory_have_one_bound"],
        ),
    ),
    (
        "Docker's daemon is not reachable",
        Mended(&["host_sockets_and_temporary_files_are_gone"]),
    ),
    (
        "is known by its name and the members next to it",
        Mended(&["what_is_no_token_answer_passes_and_waits_for_nothing"]),
    ),
    (
        "Anything a workload may send",
        Otherwise("it is a limit of what an allowed host means", &[]),
    ),
];

#[test]
fn each_defect_has_one_verdict_whose_tests_run() {
    let rows: Vec<&Row> = [&MEETINGS[..], &TOLD, &SERVICES, &ATTACKS, &EASE]
        .into_iter()
        .flatten()
        .collect();
    let told = rows.iter().map(|(kind, number, ..)| (*kind, *number));
    let wanted = KINDS
        .iter()
        .flat_map(|(kind, first, last)| (*first..=*last).map(|number| (*kind, number)));
    assert_eq!(
        told.collect::<Vec<_>>(),
        wanted.collect::<Vec<_>>(),
        "a row is missing, stands twice or in another place"
    );
    let mut table = String::new();
    for (kind, number, sentence, verdict) in &rows {
        table += &shown(
            &format!("{kind} {number}"),
            verdict.name(),
            sentence,
            verdict,
        );
    }
    for (kind, ..) in KINDS {
        let count = |name: &str| {
            let of_kind = rows.iter().filter(|row| row.0 == kind);
            of_kind.filter(|row| row.3.name() == name).count()
        };
        let [mended, otherwise, left] = ["mended", "decided otherwise", "left"].map(count);
        table += &format!("{kind}: {mended} mended, {otherwise} decided otherwise, {left} left\n");
    }
    print(&table);
    for (kind, number, sentence, verdict) in rows {
        assert!(sentence.len() <= 100, "{kind} {number} is too long");
        check(&format!("{kind} {number}"), verdict);
    }
}

#[test]
fn each_thing_that_the_readme_says_is_absent_has_its_row() {
    let readme = std::fs::read_to_string(top().join("README.md")).unwrap();
    let (_, section) = readme.split_once("## What it does not do\n").unwrap();
    let (list, _) = section.split_once("\n[The threat model]").unwrap();
    let words: Vec<&str> = list
        .split_whitespace()
        .filter(|word| *word != "-")
        .collect();
    let list = words.join(" ");
    let sentences: Vec<&str> = list.split_inclusive(". ").collect();
    let mut table = String::new();
    for (words, verdict) in &ABSENT {
        let has = sentences.iter().filter(|one| one.contains(words)).count();
        assert_eq!(has, 1, "README has no such sentence any more: {words}");
        let is = match verdict {
            Mended(_) => "tried",
            _ => "only said",
        };
        table += &shown("README", is, words, verdict);
        check(words, verdict);
    }
    print(&table);
    for sentence in sentences {
        let split = ABSENT.iter().filter(|(words, _)| sentence.contains(words));
        assert_eq!(split.count(), 1, "README says without a row: {sentence}");
    }
}

#[test]
fn each_test_that_the_pages_name_runs() {
    let mut named = BTreeSet::new();
    for page in ["threats", "threat-model", "signing", "signing-recipes"] {
        let page = top().join(format!("docs/{page}.md"));
        let text = std::fs::read_to_string(page).unwrap();
        let words = text.split('`').skip(1).step_by(2);
        named.extend(words.filter(|word| is_sentence(word)).map(String::from));
    }
    assert!(named.len() > 300, "{} names of tests", named.len());
    let missing: Vec<_> = named.difference(running()).collect();
    assert!(missing.is_empty(), "no tests that run: {missing:#?}");
}

/// Whether a word is a test's name: four words in lower case, or more.
fn is_sentence(word: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    word.bytes().all(is_plain) && word.matches('_').count() >= 3
}

/// A row as it is printed, with what is missing and its tests below it.
fn shown(id: &str, is: &str, sentence: &str, verdict: &Verdict) -> String {
    let mut lines = format!("{id:>9}  {is:<17}  {sentence}\n");
    let indent = " ".repeat(30);
    if let Some(why) = verdict.why() {
        lines += &format!("{indent}Why: {why}.\n");
    }
    for test in verdict.tests() {
        lines += &format!("{indent}{test}\n");
    }
    lines
}

/// Prints past what keeps the output of a test that passes.
fn print(table: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{table}").as_bytes()).unwrap();
}

/// A row that is mended has a test, and each test that a row names runs.
fn check(id: &str, verdict: &Verdict) {
    let tests = verdict.tests();
    assert!(
        verdict.why().is_some() || !tests.is_empty(),
        "{id}: no test"
    );
    let missing = tests.iter().filter(|test| !running().contains(**test));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "{id}: no tests that run: {missing:#?}");
}

/// The names of all tests that are not ignored.
fn running() -> &'static BTreeSet<String> {
    static RUNNING: OnceLock<BTreeSet<String>> = OnceLock::new();
    RUNNING.get_or_init(|| {
        let mut tests = Tests::default();
        for folder in ["src", "tests"] {
            for path in every_file(&top().join(folder)) {
                let text = std::fs::read_to_string(&path).unwrap();
                tests.visit_file(&syn::parse_file(&text).unwrap());
            }
        }
        tests.0
    })
}

/// Functions with the attribute of a test, and those that a program without a harness lists by the
/// macro `rows!`.
#[derive(Default)]
struct Tests(BTreeSet<String>);

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let has = |word: &str| {
            let mut all = function.attrs.iter();
            all.any(|one| {
                one.path()
                    .segments
                    .last()
                    .is_some_and(|last| last.ident == word)
            })
        };
        let is_ignored = function.attrs.iter().any(|one| {
            let mut words = one.meta.to_token_stream().into_iter();
            words.any(|word| holds(word, "ignore"))
        });
        if has("test") && !is_ignored {
            self.0.insert(function.sig.ident.to_string());
        }
        visit::visit_item_fn(self, function);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        if called.path.is_ident("rows") {
            let words = called.tokens.clone().into_iter();
            self.0.extend(words.filter_map(|word| match word {
                TokenTree::Ident(name) => Some(name.to_string()),
                _ => None,
            }));
        }
        // `fn` and a name, where the attribute is among the tokens.
        if called.path.is_ident("proptest") {
            let words: Vec<_> = called.tokens.clone().into_iter().collect();
            let named = words.windows(2).filter(|two| is(&two[0], "fn"));
            self.0.extend(named.map(|two| two[1].to_string()));
        }
    }
}

fn is(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(name) if name == word)
}

/// Whether a word stands among tokens, however deep.
fn holds(token: TokenTree, word: &str) -> bool {
    match token {
        TokenTree::Ident(name) => name == word,
        TokenTree::Group(group) => group.stream().into_iter().any(|one| holds(one, word)),
        _ => false,
    }
}
