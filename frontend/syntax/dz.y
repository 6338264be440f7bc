/* SPDX-License-Identifier: Apache-2.0 */
/* Grammar of .dz files (README.md shows it without actions). LALR(1), no conflicts.
 *
 * Lists that may hold errors are written `list: %empty | some` so that `error` can be shifted right after the opening
 * brace. After an error the feed skips to the next statement and gives one SYNC token, see feed.c. Bodies are rules of
 * their own: their `}` is reduced without a look at the next token, so an error after it belongs to the outer list. */
%code requires {
#include "build.h"
#include "parser_internal.h"
}

%require "3.8"
%expect 0
%define api.prefix {zp_dz_}
%define api.pure full
%define api.location.type {zp_span}
%define parse.error custom
%define parse.lac full
%locations
%param {zp_feed *feed}

%union zp_value {
  zp_literal literal;
  zp_name name;
  zp_names names;
  zp_arg arg;
  zp_args args;
  zp_expr *expr;
  zp_exprs exprs;
  zp_type_expr *type;
  zp_types types;
  zp_formal formal;
  zp_formals formals;
  zp_stmt *stmt;
  zp_stmts stmts;
  zp_attr *attr;
  zp_attrs attrs;
  zp_item *item;
  zp_item_kind item_kind;
  zp_attr_op attr_op;
}

%code provides {
enum { FIRST_TOKEN = START_FILE, LAST_TOKEN = AT };

/* The name of a token kind: "name", "number", or the text of the token. */
const char *zp_token_name(int token);
}

%code {
#include "syntax_error.h"

static void yyerror(const YYLTYPE *span, zp_feed *feed, const char *message);

static int yylex(YYSTYPE *value, YYLTYPE *span, zp_feed *feed) { return zp_feed_token(value, span, feed); }

#define YYLLOC_DEFAULT(current, rhs, n)                                                                                \
  ((current) = (n) ? zp_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))                                                       \
                   : (zp_span){YYRHSLOC(rhs, 0).file, YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end})

#define ARENA (feed->scan.arena)
#define NAME(span) zp_name_at(feed, (span))
#define UNARY(op, at, operand, span) zp_expr_operator(feed, ZP_EXPR_UNARY, (op), (at), (operand), NULL, (span))
#define BINARY(op, at, l, r, span) zp_expr_operator(feed, ZP_EXPR_BINARY, (op), (at), (l), (r), (span))
}

%token END 0 "end of file"
%token START_FILE START_SETTING SYNC COMMENT
%token <literal> NUMBER "number" STRING "string"
%token ID "name" RESERVED "reserved word"
%token USE "use" AS "as" LET "let" BLOCK "block" MODEL "model" INPUT "input" PARAM "param" OUTPUT "output"
%token REPEAT "repeat" IN "in" RETURN "return" IF "if" ELSE "else" ASSERT "assert" AND "and" OR "or" NOT "not"
%token TRUE "true" FALSE "false" DEVICE "device" NODE "node" CLUSTER "cluster" FABRIC "fabric" TRAIN "train" PLAN "plan"
%token LPAREN "(" RPAREN ")" LBRACKET "[" RBRACKET "]" LBRACE "{" RBRACE "}"
%token DOT "." RANGE ".." COMMA "," COLON ":" ARROW "->" ASSIGN "="
%token EQ "==" NE "!=" LT "<" LE "<=" GT ">" GE ">=" PLUS "+" MINUS "-" STAR "*" SLASH "/" PERCENT "%"
%token TILDE "~" AT "@"

%left OR
%left AND
%precedence NOT
%nonassoc EQ NE LT LE GT GE IN
%nonassoc RANGE
%left PLUS MINUS
%left STAR SLASH PERCENT
%precedence NEGATIVE
%precedence DOT LPAREN LBRACKET

%type <name> name word path key_path key_index optional_name optional_alias
%type <names> names
%type <arg> arg
%type <args> args some_args
%type <expr> expr default call
%type <exprs> exprs dims some_dims annotations
%type <type> type optional_type
%type <types> returns some_types
%type <formal> formal
%type <formals> formals some_formals optional_formals
%type <stmt> stmt
%type <stmts> body some_stmts otherwise
%type <attr> attr
%type <attrs> attr_body some_attrs
%type <item> item
%type <item_kind> hardware_kind run_kind
%type <attr_op> attr_op

%%

start: START_FILE
     | START_FILE items
     | START_SETTING attr                     { feed->setting = $2; }
     ;

items: item                                   { zp_push(ARENA, &feed->file->items, $1); }
     | error SYNC                             { yyerrok; }
     | items item                             { zp_push(ARENA, &feed->file->items, $2); }
     | items error SYNC                       { yyerrok; }
     ;

item: USE path optional_alias                 { $$ = zp_item_use(feed, $2, $3, false, @$); }
    | USE STRING optional_alias               { $$ = zp_item_use(feed, (zp_name){$2.text, @2}, $3, true, @$); }
    | LET name ASSIGN expr                    { $$ = zp_item_let(feed, $2, $4, @$); }
    | BLOCK name LPAREN formals RPAREN returns body { $$ = zp_item_code(feed, ZP_ITEM_BLOCK, $2, $4, $6, $7, @$); }
    | MODEL name optional_formals body        { $$ = zp_item_code(feed, ZP_ITEM_MODEL, $2, $3, (zp_types){0}, $4, @$); }
    | hardware_kind name optional_formals attr_body { $$ = zp_item_attrs(feed, $1, $2, $3, $4, @$); }
    | run_kind optional_name attr_body        { $$ = zp_item_attrs(feed, $1, $2, (zp_formals){0}, $3, @$); }
    ;

hardware_kind: DEVICE                         { $$ = ZP_ITEM_DEVICE; }
             | NODE                           { $$ = ZP_ITEM_NODE; }
             | CLUSTER                        { $$ = ZP_ITEM_CLUSTER; }
             | FABRIC                         { $$ = ZP_ITEM_FABRIC; }
             ;
run_kind: TRAIN                               { $$ = ZP_ITEM_TRAIN; }
        | PLAN                                { $$ = ZP_ITEM_PLAN; }
        ;

optional_alias: %empty                        { $$ = (zp_name){0}; }
              | AS name                       { $$ = $2; }
              ;
optional_name: %empty                         { $$ = (zp_name){0}; }
             | name
             ;
path: word
    | path DOT word                           { $$ = NAME(@$); }
    ;

optional_formals: %empty                      { $$ = (zp_formals){0}; }
                | LPAREN formals RPAREN       { $$ = $2; }
                ;
formals: %empty                               { $$ = (zp_formals){0}; }
       | some_formals
       | some_formals COMMA
       ;
some_formals: formal                          { $$ = (zp_formals){0}; zp_push(ARENA, &$$, $1); }
            | some_formals COMMA formal       { $$ = $1; zp_push(ARENA, &$$, $3); }
            ;
formal: name optional_type default            { $$ = (zp_formal){$1, $2, $3}; }
      ;
optional_type: %empty                         { $$ = NULL; }
             | COLON type                     { $$ = $2; }
             ;
default: %empty                               { $$ = NULL; }
       | ASSIGN expr                          { $$ = $2; }
       ;

returns: %empty                               { $$ = (zp_types){0}; }
       | ARROW type                           { $$ = (zp_types){0}; zp_push(ARENA, &$$, $2); }
       | ARROW LPAREN some_types RPAREN       { $$ = $3; }
       ;
some_types: type                              { $$ = (zp_types){0}; zp_push(ARENA, &$$, $1); }
          | some_types COMMA type             { $$ = $1; zp_push(ARENA, &$$, $3); }
          ;
type: name                                    { $$ = zp_type_new(feed, $1, NULL, @$); }
    | name LBRACKET dims RBRACKET             { $$ = zp_type_new(feed, $1, &$3, @$); }
    | LBRACKET dims RBRACKET                  { $$ = zp_type_new(feed, (zp_name){0}, &$2, @$); }
    ;
dims: %empty                                  { $$ = (zp_exprs){0}; }
    | some_dims
    ;
some_dims: expr                               { $$ = (zp_exprs){0}; zp_push(ARENA, &$$, $1); }
         | some_dims COMMA expr               { $$ = $1; zp_push(ARENA, &$$, $3); }
         ;

body: LBRACE RBRACE                           { $$ = (zp_stmts){0}; }
    | LBRACE some_stmts RBRACE                { $$ = $2; }
    ;
some_stmts: stmt                              { $$ = (zp_stmts){0}; zp_push(ARENA, &$$, $1); }
          | error SYNC                        { $$ = (zp_stmts){0}; yyerrok; }
          | some_stmts stmt                   { $$ = $1; zp_push(ARENA, &$$, $2); }
          | some_stmts error SYNC             { $$ = $1; yyerrok; }
          ;
stmt: INPUT name COLON type                   { $$ = zp_stmt_declare(feed, ZP_STMT_INPUT, $2, $4, NULL, @$); }
    | PARAM name COLON type                   { $$ = zp_stmt_declare(feed, ZP_STMT_PARAM, $2, $4, NULL, @$); }
    | PARAM name COLON type TILDE call        { $$ = zp_stmt_declare(feed, ZP_STMT_PARAM, $2, $4, $6, @$); }
    | names ASSIGN expr annotations           { $$ = zp_stmt_assign(feed, $1, $3, $4, @$); }
    | OUTPUT name ASSIGN expr                 { $$ = zp_stmt_output(feed, $2, $4, @$); }
    | REPEAT name IN expr body                { $$ = zp_stmt_repeat(feed, $2, $4, $5, @$); }
    | RETURN exprs                            { $$ = zp_stmt_return(feed, $2, @$); }
    | IF expr body otherwise                  { $$ = zp_stmt_if(feed, $2, $3, $4, @$); }
    | ASSERT expr                             { $$ = zp_stmt_assert(feed, $2, NULL, @$); }
    | ASSERT expr COMMA STRING                { $$ = zp_stmt_assert(feed, $2, $4.text, @$); }
    ;
otherwise: %empty                             { $$ = (zp_stmts){0}; }
         | ELSE body                          { $$ = $2; }
         | ELSE IF expr body otherwise        {
             zp_stmt *chained = zp_stmt_if(feed, $3, $4, $5, zp_join(@2, @$));
             chained->is_else_if = true;
             $$ = (zp_stmts){0};
             zp_push(ARENA, &$$, chained);
           }
         ;
names: name                                   { $$ = (zp_names){0}; zp_push(ARENA, &$$, $1); }
     | names COMMA name                       { $$ = $1; zp_push(ARENA, &$$, $3); }
     ;
exprs: expr                                   { $$ = (zp_exprs){0}; zp_push(ARENA, &$$, $1); }
     | exprs COMMA expr                       { $$ = $1; zp_push(ARENA, &$$, $3); }
     ;
annotations: %empty                           { $$ = (zp_exprs){0}; }
           | annotations AT call              { $$ = $1; zp_push(ARENA, &$$, $3); }
           ;
call: name LPAREN args RPAREN                 { $$ = zp_expr_call(feed, zp_expr_name(feed, $1), $3, @$); }
    ;

attr_body: LBRACE RBRACE                      { $$ = (zp_attrs){0}; }
         | LBRACE some_attrs RBRACE           { $$ = $2; }
         ;
some_attrs: attr                              { $$ = (zp_attrs){0}; zp_push(ARENA, &$$, $1); }
          | error SYNC                        { $$ = (zp_attrs){0}; yyerrok; }
          | some_attrs attr                   { $$ = $1; zp_push(ARENA, &$$, $2); }
          | some_attrs error SYNC             { $$ = $1; yyerrok; }
          ;
attr: key_path key_index attr_op expr         { $$ = zp_attr_value(feed, $1, $2, $3, $4, @$); }
    | key_path attr_body                      { $$ = zp_attr_block(feed, $1, NULL, $2, @$); }
    | key_path STRING attr_body               { $$ = zp_attr_block(feed, $1, $2.text, $3, @$); }
    ;
key_path: word
        | key_path DOT word                   { $$ = NAME(@$); }
        ;
key_index: %empty                             { $$ = (zp_name){0}; }
         | LBRACKET word RBRACKET             { $$ = $2; }
         ;
attr_op: ASSIGN                               { $$ = ZP_ATTR_SET; }
       | LE                                   { $$ = ZP_ATTR_LE; }
       | GE                                   { $$ = ZP_ATTR_GE; }
       | LT                                   { $$ = ZP_ATTR_LT; }
       | GT                                   { $$ = ZP_ATTR_GT; }
       | NE                                   { $$ = ZP_ATTR_NE; }
       | IN                                   { $$ = ZP_ATTR_IN; }
       ;

expr: NUMBER                                  { $$ = zp_expr_number(feed, $1, @$); }
    | STRING                                  { $$ = zp_expr_string(feed, $1, @$); }
    | TRUE                                    { $$ = zp_expr_bool(feed, true, @$); }
    | FALSE                                   { $$ = zp_expr_bool(feed, false, @$); }
    | name                                    { $$ = zp_expr_name(feed, $1); }
    | LPAREN expr RPAREN                      { $$ = $2; $$->span = @$; }
    | LBRACKET args RBRACKET                  { $$ = zp_expr_list(feed, $2, @$); }
    | expr LPAREN args RPAREN                 { $$ = zp_expr_call(feed, $1, $3, @$); }
    | expr LBRACKET args RBRACKET             { $$ = zp_expr_index(feed, $1, $3, @$); }
    | expr DOT word                           { $$ = zp_expr_field(feed, $1, $3, @$); }
    | MINUS expr %prec NEGATIVE               { $$ = UNARY(ZP_OPR_NEG, @1, $2, @$); }
    | NOT expr                                { $$ = UNARY(ZP_OPR_NOT, @1, $2, @$); }
    | expr PLUS expr                          { $$ = BINARY(ZP_OPR_ADD, @2, $1, $3, @$); }
    | expr MINUS expr                         { $$ = BINARY(ZP_OPR_SUB, @2, $1, $3, @$); }
    | expr STAR expr                          { $$ = BINARY(ZP_OPR_MUL, @2, $1, $3, @$); }
    | expr SLASH expr                         { $$ = BINARY(ZP_OPR_DIV, @2, $1, $3, @$); }
    | expr PERCENT expr                       { $$ = BINARY(ZP_OPR_MOD, @2, $1, $3, @$); }
    | expr RANGE expr                         { $$ = BINARY(ZP_OPR_RANGE, @2, $1, $3, @$); }
    | expr EQ expr                            { $$ = BINARY(ZP_OPR_EQ, @2, $1, $3, @$); }
    | expr NE expr                            { $$ = BINARY(ZP_OPR_NE, @2, $1, $3, @$); }
    | expr LT expr                            { $$ = BINARY(ZP_OPR_LT, @2, $1, $3, @$); }
    | expr LE expr                            { $$ = BINARY(ZP_OPR_LE, @2, $1, $3, @$); }
    | expr GT expr                            { $$ = BINARY(ZP_OPR_GT, @2, $1, $3, @$); }
    | expr GE expr                            { $$ = BINARY(ZP_OPR_GE, @2, $1, $3, @$); }
    | expr IN expr                            { $$ = BINARY(ZP_OPR_IN, @2, $1, $3, @$); }
    | expr AND expr                           { $$ = BINARY(ZP_OPR_AND, @2, $1, $3, @$); }
    | expr OR expr                            { $$ = BINARY(ZP_OPR_OR, @2, $1, $3, @$); }
    ;

args: %empty                                  { $$ = (zp_args){0}; }
    | some_args
    | some_args COMMA
    ;
some_args: arg                                { $$ = (zp_args){0}; zp_push(ARENA, &$$, $1); }
         | some_args COMMA arg                { $$ = $1; zp_push(ARENA, &$$, $3); }
         ;
arg: expr                                     { $$ = (zp_arg){.value = $1}; }
   | word ASSIGN expr                         { $$ = (zp_arg){$1, $3}; }
   ;

name: ID                                      { $$ = NAME(@1); }
    ;

 /* A name, or a keyword where only a name can stand: `node = dgx2`, `x.model`. */
word: ID       { $$ = NAME(@1); }
    | USE      { $$ = NAME(@1); }
    | AS       { $$ = NAME(@1); }
    | LET      { $$ = NAME(@1); }
    | BLOCK    { $$ = NAME(@1); }
    | MODEL    { $$ = NAME(@1); }
    | INPUT    { $$ = NAME(@1); }
    | PARAM    { $$ = NAME(@1); }
    | OUTPUT   { $$ = NAME(@1); }
    | REPEAT   { $$ = NAME(@1); }
    | RETURN   { $$ = NAME(@1); }
    | IF       { $$ = NAME(@1); }
    | ELSE     { $$ = NAME(@1); }
    | ASSERT   { $$ = NAME(@1); }
    | DEVICE   { $$ = NAME(@1); }
    | NODE     { $$ = NAME(@1); }
    | CLUSTER  { $$ = NAME(@1); }
    | FABRIC   { $$ = NAME(@1); }
    | TRAIN    { $$ = NAME(@1); }
    | PLAN     { $$ = NAME(@1); }
    | RESERVED { $$ = NAME(@1); }
    ;

%%

/* Bison knows which symbols could stand here; syntax_error.c makes the words. */
static int yyreport_syntax_error(const yypcontext_t *context, zp_feed *feed) {
  yysymbol_kind_t symbols[YYNTOKENS];
  int count = yypcontext_expected_tokens(context, symbols, YYNTOKENS);
  zp_expected expected = {0};
  for (int token = FIRST_TOKEN; token <= LAST_TOKEN; token++)
    for (int i = 0; i < count; i++)
      if (symbols[i] == YYTRANSLATE(token)) expected.token[token - FIRST_TOKEN] = true;
  zp_syntax_error(feed, &expected);
  return 0;
}

/* Other errors than syntax errors: bison's own stack is full. */
static void yyerror(const YYLTYPE *span, zp_feed *feed, const char *message) {
  (void)message;
  zp_feed_too_deep(feed, *span);
}

const char *zp_token_name(int token) { return yysymbol_name(YYTRANSLATE(token)); }
